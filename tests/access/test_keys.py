"""Keys of projects, and the session tokens that are made from keys."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.access import Key, Keys, check_session_token, make_session_token, make_token, may_use
from turnout.access.sessions import LONGEST_SESSION
from turnout.errors import Denied, Invalid, NotFound, Unauthenticated
from turnout.store import Store, StoredKey

ROOT = Key("AKIDroot", "a secret", "default", root=True)
ANN = Key("AKIDann", "another secret", "vision")
NOW = 1_800_000_000.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store.open("", tmp_path / "turnout.db")
    yield store
    await store.close()


async def opened(store: Store) -> Keys:
    keys = Keys(ROOT)
    await keys.open(store)
    return keys


class TestKeys:
    async def test_are_there_after_a_restart(self, store: Store) -> None:
        keys = await opened(store)
        key = await keys.create("vision", "Ann's laptop")
        assert (key.project, key.root, key.label) == ("vision", False, "Ann's laptop")
        for now in (keys, await opened(store)):
            assert now.find(key.id) == key
            assert now.all() == [ROOT, key]

    async def test_are_refused_once_they_are_revoked(self, store: Store) -> None:
        keys = await opened(store)
        key = await keys.create("vision")
        token = make_session_token(key, "vision", NOW)
        await keys.revoke(key.id)
        for now in (keys, await opened(store)):
            assert now.find(key.id) is None
            with pytest.raises(Unauthenticated):
                check_session_token(now, token, NOW)
        with pytest.raises(NotFound):
            await keys.revoke(key.id)

    async def test_cannot_take_roots_place(self, store: Store) -> None:
        await store.keys.add(StoredKey(ROOT.id, "mine", "vision", "", 1))
        keys = await opened(store)
        assert keys.find(ROOT.id) == ROOT
        assert keys.all() == [ROOT]
        with pytest.raises(Denied):
            await keys.revoke(ROOT.id)

    @pytest.mark.parametrize("project", ["", "a b", "-a", "a" * 65, "训练", "a\0", "a\n"])
    async def test_need_a_project(self, store: Store, project: str) -> None:
        with pytest.raises(Invalid, match="cannot be a project"):
            await (await opened(store)).create(project)

    @pytest.mark.parametrize("label", ["\0", "\ud800", "a\nb", "x" * 201])
    async def test_have_labels_for_people(self, store: Store, label: str) -> None:
        with pytest.raises(Invalid, match="label"):
            await (await opened(store)).create("vision", label)


def test_root_may_use_every_project_and_others_their_own() -> None:
    may_use(ROOT, "vision")
    may_use(ANN, "vision")
    with pytest.raises(Denied, match="belongs to project vision and may not act in default"):
        may_use(ANN, "default")
    with pytest.raises(Denied, match="cannot be a project"):
        may_use(ROOT, "a/b")


def known() -> Keys:
    keys = Keys(ROOT)
    keys._keys[ANN.id] = ANN  # type: ignore[reportPrivateUsage]
    return keys


class TestSessionTokens:
    def test_name_their_project(self) -> None:
        for key, project in ((ROOT, "default"), (ROOT, "other"), (ANN, "vision")):
            assert check_session_token(known(), make_session_token(key, project, NOW), NOW) == (key, project)

    def test_are_made_only_for_projects_that_the_key_may_use(self) -> None:
        with pytest.raises(Denied):
            make_session_token(ANN, "default", NOW)

    def test_live_for_a_day_at_most(self) -> None:
        token = make_session_token(ANN, "vision", NOW, seconds=10**9)
        check_session_token(known(), token, NOW + LONGEST_SESSION - 1)
        with pytest.raises(Unauthenticated, match="expired"):
            check_session_token(known(), token, NOW + LONGEST_SESSION)
        with pytest.raises(Unauthenticated, match="expired"):
            check_session_token(known(), make_session_token(ANN, "vision", NOW, seconds=60), NOW + 60)

    def test_that_live_too_long_are_refused(self) -> None:
        with pytest.raises(Unauthenticated):
            check_session_token(known(), make_session_token(ANN, "vision", NOW + 10**6), NOW)

    def test_are_no_bearer_tokens_and_the_other_way_round(self) -> None:
        with pytest.raises(Unauthenticated):
            check_session_token(known(), make_token(ANN, NOW), NOW)

    def test_of_another_secret_are_refused(self) -> None:
        forged = make_session_token(ANN._replace(secret="guessed"), "vision", NOW)
        with pytest.raises(Unauthenticated, match="not valid"):
            check_session_token(known(), forged, NOW)

    @given(place=st.integers(0, 400), char=st.sampled_from("0aZ.-_=\ud800é"))
    def test_are_refused_after_any_change(self, place: int, char: str) -> None:
        token = make_session_token(ANN, "vision", NOW)
        place %= len(token)
        changed = token[:place] + char + token[place + 1 :]
        if changed != token:
            with pytest.raises(Unauthenticated):
                check_session_token(known(), changed, NOW)

    @given(token=st.text() | st.lists(st.text(), max_size=6).map(".".join).map("ts1.".__add__))
    def test_of_any_other_kind_are_refused(self, token: str) -> None:
        with pytest.raises(Unauthenticated):
            check_session_token(known(), token, NOW)
