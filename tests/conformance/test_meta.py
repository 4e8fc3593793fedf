"""Discovery and housekeeping endpoints."""
from support import refused


def test_health(api):
    """A supervisor or container probe would kill a working server."""
    r = api.get("/health")
    assert r.status_code == 200


def test_models_list(api):
    """A chat client's model menu would be empty."""
    r = api.get("/v1/models")
    assert r.status_code == 200 and "application/json" in r.headers["content-type"]
    d = r.json()
    assert d["object"] == "list" and d["data"]
    for m in d["data"]:
        assert isinstance(m["id"], str) and m["id"]
        assert m["object"] == "model"
        assert type(m["created"]) is int
        assert isinstance(m["owned_by"], str)


def test_models_list_sdk(openai_client, api):
    """The official library could not list the models."""
    assert api.model in [m.id for m in openai_client.models.list()]


def test_model_retrieve(openai_client, api):
    """A client that checks its configured model at start would refuse to start."""
    m = openai_client.models.retrieve(api.model)
    assert m.id == api.model and m.object == "model"


def test_model_retrieve_unknown(api):
    """A typing error in the model name would look like a working model."""
    refused(api.get("/v1/models/no-such-model-here"), [404])


def test_context_is_told(api):
    """Clients would assume another context than the one in force."""
    m = api.get("/v1/models/" + api.model).json()
    assert type(m["context_length"]) is int and m["context_length"] == m["max_model_len"] > 0


def test_health_counts(api):
    """A supervisor reads how busy the server is."""
    assert api.get("/health").json() == {"status": "ok", "in_flight": 0, "queued": 0}
