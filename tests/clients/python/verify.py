"""Judges a token as a service would, by PyJWT: verify.py TOKEN AUDIENCE ISSUER, the key set on standard input.

Prints the header and the claims as one line of JSON; a token that does not hold is an error.
"""

import json
import sys

import jwt


def main(token, audience, issuer):
    keys = jwt.PyJWKSet.from_dict(json.load(sys.stdin))
    header = jwt.get_unverified_header(token)
    key = next(key for key in keys.keys if key.key_id == header["kid"])
    required = ["exp", "iat", "aud", "iss", "sub", "jti"]
    claims = jwt.decode(
        token, key.key, algorithms=["ES256"], audience=audience, issuer=issuer, options={"require": required}
    )
    print(json.dumps({"header": header, "claims": claims}))


if __name__ == "__main__":
    main(*sys.argv[1:])
