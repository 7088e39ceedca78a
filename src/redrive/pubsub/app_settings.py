"""Settings of an app, read from environment variables that begin with `REDRIVE_`."""

from typing import cast

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from redrive.errors import ConfigurationError
from redrive.pubsub.url import seconds_of

try:
    from pydantic_settings import BaseSettings, SettingsConfigDict
except ImportError as missing:
    raise ConfigurationError(
        f"an app's settings need {missing.name}, which is not installed",
        "Give the app a URL, or: pip install 'redrive[settings]'",
    ) from missing

_PREFIX = "REDRIVE_"


class Settings(BaseSettings):
    """Settings that an app can get from outside, such as `REDRIVE_URL`.

    A subclass can add a service's own settings, and read them from other sources as
    pydantic-settings allows. Arguments given in the program take precedence over these settings.

    Args:
        url: the broker's address.
        connection_name: the name shown on the broker's management page.
        grace: how long running handlers may take to finish on shutdown, as a duration (`30s`) or in
            seconds.
        patience: how long to wait at startup for a broker that does not answer.
        publish_timeout: how long to wait for a confirm.
    """

    model_config = SettingsConfigDict(env_prefix=_PREFIX, extra="ignore", frozen=True)

    # Type checkers treat a field without a default as a required argument.
    url: SecretStr = Field(default=cast("SecretStr", None), validate_default=True)
    connection_name: str | None = None
    grace: float | None = None
    patience: float | None = None
    publish_timeout: float | None = None

    @field_validator("url", mode="before")
    @classmethod
    def _is_there(cls, given: object) -> object:
        if given is None:
            raise PydanticCustomError("missing", "Field required")
        return given

    @field_validator("grace", "patience", "publish_timeout", mode="before")
    @classmethod
    def _read(cls, given: object) -> object:
        """Parse a duration given as text (`30s`) or as a number of seconds."""
        if given is None:
            return None
        text = str(given)
        try:
            return seconds_of(float(text) if text.replace(".", "", 1).isdecimal() else text)
        except ConfigurationError as error:
            raise ValueError(f"{text!r:.80} is not a duration") from error


def settings_of_environment() -> Settings:
    """Return the settings that the environment has now.

    Raises:
        ConfigurationError: a setting is missing or invalid; the message names its variable.
    """
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        name = f"{_PREFIX}{'_'.join(map(str, first['loc'])).upper()}"
        if first["type"] == "missing":
            raise ConfigurationError(
                f"the app has no URL, and the environment has no {name}",
                f"Set {name}, or give the app a URL.",
            ) from None
        raise ConfigurationError(
            f"the environment variable {name} can't be read: "
            f"{first['msg'].removeprefix('Value error, ')}",
            "Set it to a duration such as 30s.",
        ) from None
