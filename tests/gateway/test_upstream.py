import json

from pydantic import SecretStr

from skillopt_airflow.gateway.upstream import Upstream

AWS = {"region_name": "eu-west-1", "aws_access_key_id": "id-of-aws", "aws_secret_access_key": "aws-secret"}
NOVA = {"dialect": "openai-chat", "base_url": "", "model": "nova", "provider": "bedrock", "arguments": json.dumps(AWS)}
UPSTREAM = Upstream(
    conn_id="first",
    dialect="openai-chat",
    base_url="http://127.0.0.1:9/v1",
    model="m",
    api_key=SecretStr("key-of-the-first"),
    fallbacks=(Upstream.model_validate(NOVA),),
)
SECRETS = {"key-of-the-first", "id-of-aws", "aws-secret"}


def test_only_the_method_for_it_reveals_the_secrets() -> None:
    revealed = json.dumps(UPSTREAM.dump_with_secrets())
    hidden = [repr(UPSTREAM), str(UPSTREAM), UPSTREAM.model_dump_json(), json.dumps(UPSTREAM.model_dump(mode="json"))]
    for secret in SECRETS:
        assert secret in revealed
        assert not any(secret in text for text in hidden)
    assert Upstream.model_validate_json(revealed) == UPSTREAM


def test_the_secrets_and_nothing_else_that_the_provider_is_made_with() -> None:
    assert UPSTREAM.secrets() == SECRETS
    assert Upstream(dialect="openai", base_url="http://127.0.0.1:9/v1", model="m").secrets() == frozenset()
