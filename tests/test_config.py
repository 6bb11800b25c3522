"""Error messages for wrong settings."""

from pathlib import Path

import pytest

from turnout import app, config
from turnout.errors import Misconfigured
from turnout.runtimes import runtime_table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[server]\nport = "x"', "[server] port must be a whole number, not text"),
        ("[server]\nport = 99999", "[server] port must be from 0 to 65535, not 99999"),
        ("[grpc]\nport = 99999", "[grpc] port must be from 0 to 65535, not 99999"),
        (
            '[server]\ntrusted_proxies = ["nginx"]',
            "[server] trusted_proxies: 'nginx' is not an address or a network, such as 127.0.0.1 or 10.0.0.0/8",
        ),
        ('[tls]\ncert = "c.pem"', "[tls] key is missing: a certificate and its key go together"),
        ('[tls]\nkey = "k.pem"', "[tls] cert is missing: a certificate and its key go together"),
        ("[server]\nhost = true", "[server] host must be text, not true or false"),
        ("server = 3", "[server] must be a table, not a whole number"),
        ("no_auth = 3", "no_auth must be true or false, not a whole number"),
        (
            '[engines.local]\nsandbox = "bwrap"',
            "[engines.local] sandbox must be auto, bubblewrap or none, not 'bwrap'",
        ),
        ('[engines.local]\ngpus = "many"', "[engines.local] gpus must be auto or a whole number, not 'many'"),
        ("[engines.local]\ngpus = 1.5", "[engines.local] gpus must be auto or a whole number, not a number"),
        ('[engines.local]\novercommit = "x"', "[engines.local] overcommit must be a number, not text"),
        ('[storage]\nhost_paths = "x"', "[storage] host_paths must be a list, not text"),
        ("[storage]\nhost_paths = [1]", "[storage] host_paths must be text, not a whole number"),
        ("[runtimes.a]\npython = 3", "[runtimes.…] python must be text, not a whole number"),
        ('[runtimes.a]\npyton = "x"', "[runtimes.…] has no setting pyton; did you mean python?"),
        ('[runtimes.a]\nlead_task = "boss"', "[runtimes.…] lead_task must be chief or master, not 'boss'"),
        ("[pools.p]\ncluster = 3", "[pools.…] cluster must be text, not a whole number"),
        ('[datasets.d]\nurls = "x"', "[datasets.…] has no setting urls; did you mean url?"),
        ("[subscriptions.s]\nalgorithm = []", "[subscriptions.…] algorithm must be text, not a list"),
        ('[images]\n"a:1" = 3', "[images] … must be text, not a whole number"),
        ('[keyring]\n"k" = { files = "/k" }', "[keyring.…] has no setting files; did you mean file?"),
        ('[keyring]\n"k" = {}', '[keyring."k"] needs one of file and command'),
        (
            '[keyring]\n"k" = { file = "/k", command = ["c"] }',
            '[keyring."k"] needs one of file and command',
        ),
        ('[keyring]\n"k" = { file = "k" }', "[keyring.\"k\"] file = 'k' is not an absolute path"),
        ("[limits]\nlog_bytes = 1.5", "[limits] log_bytes must be a whole number, not a number"),
        ("[sever]", "[top level] has no setting sever; did you mean server?"),
    ],
)
def test_the_message_for_a_wrong_setting(tmp_path, text, message):
    file = tmp_path / "turnout.toml"
    file.write_text(text)
    with pytest.raises(Misconfigured) as raised:
        config.load(str(file))
    assert raised.value.message.removeprefix(f"{file}: ") == message


def test_a_pool_on_an_unknown_cluster(tmp_path):
    file = tmp_path / "turnout.toml"
    file.write_text('[pools.p]\ncluster = "moon"')
    with pytest.raises(
        Misconfigured, match=r"\[pools.p\] cluster = 'moon' is not known; there are ap-beijing"
    ):
        config.load(str(file))


@pytest.mark.parametrize(
    ("name", "heading"), [("torch-2", "[runtimes.torch-2]"), ("tia-1.7.0", '[runtimes."tia-1.7.0"]')]
)
def test_the_heading_of_a_runtime(name, heading):
    assert runtime_table(name) == heading


def test_a_runtime_that_does_not_exist(tmp_path):
    file = tmp_path / "turnout.toml"
    file.write_text('[server]\ndata = "/srv/data"\n[runtimes."tia-1.7.0"]\npython = "/nowhere/python"\n')
    with pytest.raises(Misconfigured, match=r'\[runtimes."tia-1.7.0"\] python = .* does not exist'):
        app.check(config.load(str(file)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'engine = "pbs"',
            r"\[clusters.x\] engine = 'pbs' is not known; there are local, slurm, kubernetes, ray",
        ),
        ('engine = "slurm"\nspread = true', r"\[clusters.x\] spread has no effect with engine = 'slurm'"),
        ('engine = "ray"\npartition = "gpu"', r"\[clusters.x\] partition has no effect with engine = 'ray'"),
        ('engine = "ray"\naddress = "head"', r"\[clusters.x\] address = 'head' is not <host>:<port>"),
        (
            'engine = "ray"\naddress = "ray://head:10001"',
            r"address = 'ray://head:10001' is not <host>:<port>",
        ),
        ('engine = "ray"\nresources = {GPU = 1}', r"\[clusters.x\] resources: GPU must be a custom resource"),
        ('partition = "gpu"', r"\[clusters.x\] partition has no effect with engine = 'local'"),
        ("pending = 3", r"\[clusters.x\] pending has no effect with engine = 'local'"),
        ('engine = "slurm"\npending = 0', r"\[clusters.x\] pending must be at least 1"),
        ('engine = "slurm"\nshared = ["lustre"]', r"\[clusters.x\]: 'lustre' is not the absolute path"),
        ('engine = "slurm"\npartitoin = "gpu"', r"has no setting partitoin; did you mean partition\?"),
    ],
)
def test_clusters(tmp_path: Path, text: str, message: str):
    file = tmp_path / "turnout.toml"
    file.write_text(f"[clusters.x]\n{text}\n")
    with pytest.raises(Misconfigured, match=message):
        config.load(str(file))


@pytest.mark.parametrize("url", ["10.0.0.1:8470", "ftp://host", "http://host/path"])
def test_the_address_for_nodes(url: str):
    with pytest.raises(Misconfigured, match=r"\[runner\] url"):
        config.load(flags={"runner": {"url": url}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[runtimes.x]\npackages = ["-e ."]', "[runtimes.x] packages: '-e .' is not a requirement"),
        ('[runtimes.x]\npackages = ["--index-url=http://evil"]', "is not a requirement"),
        ('[runtimes.x]\npackages = ["torch\\n--pre"]', "is not a requirement"),
        ('[runtimes.x]\npackages = [" -r /etc/passwd"]', "is not a requirement"),
        ('[runtimes.x]\npackages = ["@evil"]', "is not a requirement"),
        ('[runtimes.x]\nrequirements = "r.txt"', "requirements = 'r.txt' must be an absolute path"),
        (
            '[runtimes.x]\npython = "python3"',
            "must be the absolute path of an interpreter or a version such as 3.12",
        ),
        ('[runtimes]\ndefault = "x"', "[runtimes] default = 'x' is not a runtime of the settings"),
        ("[runtimes]\nmake_seconds = 0", "[runtimes] make_seconds must be from 1 to"),
        ("[runtimes]\nmake = 1", "[runtimes] make must be true or false, not a whole number"),
        ("[runtimes]\nmaking = true", "[runtimes] has no setting making; did you mean make?"),
        ("runtimes = 1", "runtimes must be a table"),
    ],
)
def test_wrong_runtimes(tmp_path, text, message):
    (tmp_path / "turnout.toml").write_text(text)
    with pytest.raises(Misconfigured) as refused:
        config.load(str(tmp_path / "turnout.toml"))
    assert message in refused.value.message


def test_settings_of_all_runtimes_stand_beside_the_tables_of_single_ones(tmp_path):
    text = '[runtimes]\nmake = true\n[runtimes.index]\npython = "3.12"\n[runtimes.default]\npackages = ["torch==2.*"]\n'
    (tmp_path / "turnout.toml").write_text(text)
    found = config.load(str(tmp_path / "turnout.toml"))
    assert found.runtime_defaults.make
    assert (found.runtimes["index"].python, found.runtimes["default"].packages) == ("3.12", ["torch==2.*"])
