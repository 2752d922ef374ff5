"""The operator's command line."""

from tailrace_operator import settings

ENVIRONMENT = {settings.IMAGE_VARIABLE: "spark", "KUBECONFIG": "none"}


def test_a_namespace_that_is_named_twice_is_watched_once() -> None:
    named = ["--namespace", "b", "--namespace", "a", "--namespace", "b"]
    assert settings.parse(named, ENVIRONMENT).namespaces == ("b", "a")
    assert settings.parse([], ENVIRONMENT).namespaces == (None,)
