"""What test programs in jobs use: only the standard library, so that they start quickly."""

CLIENT = '''
import json, os, sys, time, urllib.error, urllib.request
GOOGLE = {"Metadata-Flavor": "Google"}
def ask(url, headers={}, data=None, again=50):
    """Status and body. A request that a killed service broke off is repeated, as the clouds' clients do."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        if not again:
            raise
        time.sleep(0.1)
        return ask(url, headers, data, again - 1)
def metadata(path, headers=GOOGLE):
    return ask(f"http://{os.environ['GCE_METADATA_HOST']}/computeMetadata/v1/{path}", headers)
def token():
    status, text = metadata("instance/service-accounts/default/token")
    assert status == 200, text
    return json.loads(text)["access_token"]
def read(bucket, name, bearer=""):
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    return ask(f"{os.environ['API_ENDPOINT_OVERRIDE']}/storage/v1/b/{bucket}/o/{name}?alt=media", headers)
def write(bucket, name, text, bearer=""):
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
    return ask(os.environ["API_ENDPOINT_OVERRIDE"] + path, headers, text.encode())
'''
