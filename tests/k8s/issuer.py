"""A company's login: prints, as one line of JSON, the issuers' file (`ASP_ISSUERS`) and a token of it for the org acme."""

import datetime
import json

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

ISSUER = "https://login.example.com"


def main():
    key = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())) | {"kid": "one", "alg": "ES256", "use": "sig"}
    login = {"name": "login", "iss": ISSUER, "jwks": {"keys": [public]}, "algs": ["ES256"], "audiences": ["asp"]}
    now = datetime.datetime.now(datetime.UTC)
    claims = {"iss": ISSUER, "sub": "ada", "aud": "asp", "org": "acme", "jti": "one", "iat": now, "exp": now + datetime.timedelta(hours=2)}
    token = jwt.encode(claims, key, "ES256", headers={"kid": "one", "typ": "at+jwt"})
    print(json.dumps({"issuers": {"clients": [login], "admins": []}, "token": token}))


if __name__ == "__main__":
    main()
