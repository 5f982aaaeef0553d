"""The S3 server of the store's tests, for those that publish what was trained."""

from tests.store.conftest import aws_variables, s3_client, s3_endpoint, store

__all__ = ["aws_variables", "s3_client", "s3_endpoint", "store"]
