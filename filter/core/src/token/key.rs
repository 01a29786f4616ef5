//! A public signing key, checked once when a snapshot is decoded.
//!
//! Owns the binding of one key to one algorithm (RFC 8725 section 3.1): type, curve and size must fit the algorithm
//! that the issuer's configuration names; the token never chooses. Refuses symmetric keys, private key members, RSA
//! below 2048 bits and every algorithm that is not listed here.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

const MIN_RSA_BYTES: usize = 2048 / 8;
/// Upper bound of a modulus: verification time grows with its square, and no larger keys are in use.
const MAX_RSA_BYTES: usize = 8192 / 8;
const MAX_EXPONENT_BYTES: usize = 4;

/// Verification key and the only algorithm it may be used with.
pub(crate) struct VerificationKey {
    pub(crate) decoding: DecodingKey,
    pub(crate) algorithm: Algorithm,
    /// The algorithm's JOSE name, compared with the token's header.
    pub(crate) name: &'static str,
}

/// Members of a JWK that matter (RFC 7517, RFC 7518 section 6, RFC 8037).
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    d: Option<serde::de::IgnoredAny>,
}

/// JOSE names of the accepted algorithms.
pub(super) const ALGS: [&str; 6] = ["RS256", "RS384", "RS512", "ES256", "ES384", "EdDSA"];

/// Builds the key of algorithm `alg` from JWK JSON; the error text is for the operator.
pub(crate) fn build(alg: &str, jwk: &str) -> Result<VerificationKey, String> {
    let jwk: Jwk = serde_json::from_str(jwk).map_err(|error| format!("not a JWK: {error}"))?;
    if jwk.d.is_some() {
        return Err("contains a private key".to_owned());
    }
    if jwk.alg.as_deref().is_some_and(|named| named != alg) {
        return Err(format!("its own alg is not {alg}"));
    }
    if jwk.usage.as_deref().is_some_and(|usage| usage != "sig") {
        return Err("is not for signatures".to_owned());
    }
    let (name, algorithm, decoding) = match alg {
        "RS256" => ("RS256", Algorithm::RS256, rsa(&jwk)?),
        "RS384" => ("RS384", Algorithm::RS384, rsa(&jwk)?),
        "RS512" => ("RS512", Algorithm::RS512, rsa(&jwk)?),
        "ES256" => ("ES256", Algorithm::ES256, ec(&jwk, "P-256", 32)?),
        "ES384" => ("ES384", Algorithm::ES384, ec(&jwk, "P-384", 48)?),
        "EdDSA" => ("EdDSA", Algorithm::EdDSA, ed25519(&jwk)?),
        other => return Err(format!("algorithm {other:?} is not accepted")),
    };
    Ok(VerificationKey { decoding, algorithm, name })
}

fn rsa(jwk: &Jwk) -> Result<DecodingKey, String> {
    expect("kty", &jwk.kty, "RSA")?;
    let modulus = without_leading_zeros(bytes("n", jwk.n.as_deref())?);
    let exponent = without_leading_zeros(bytes("e", jwk.e.as_deref())?);
    if !(MIN_RSA_BYTES..=MAX_RSA_BYTES).contains(&modulus.len()) {
        return Err(format!("an RSA key of {} bits is not accepted", modulus.len() * 8));
    }
    let odd = exponent.last().is_some_and(|last| last & 1 == 1);
    if !odd || exponent.len() > MAX_EXPONENT_BYTES || exponent == [1] {
        return Err("RSA exponent is not accepted".to_owned());
    }
    Ok(DecodingKey::from_rsa_raw_components(&modulus, &exponent))
}

/// Builds a key from an EC point. The signature library checks on each use whether the point lies on the curve.
fn ec(jwk: &Jwk, curve: &str, size: usize) -> Result<DecodingKey, String> {
    expect("kty", &jwk.kty, "EC")?;
    expect("crv", jwk.crv.as_deref().unwrap_or_default(), curve)?;
    let mut point = vec![4];
    for (name, coordinate) in [("x", &jwk.x), ("y", &jwk.y)] {
        let coordinate = bytes(name, coordinate.as_deref())?;
        if coordinate.len() != size {
            return Err(format!("{name} is not {size} bytes long"));
        }
        point.extend(coordinate);
    }
    Ok(DecodingKey::from_ec_der(&point))
}

fn ed25519(jwk: &Jwk) -> Result<DecodingKey, String> {
    expect("kty", &jwk.kty, "OKP")?;
    expect("crv", jwk.crv.as_deref().unwrap_or_default(), "Ed25519")?;
    let key = bytes("x", jwk.x.as_deref())?;
    if key.len() != 32 {
        return Err("x is not 32 bytes long".to_owned());
    }
    if !is_valid_point(&key) {
        return Err("x is a point of small order or not canonical".to_owned());
    }
    Ok(DecodingKey::from_ed_der(&key))
}

/// The y coordinates of the points of small order (RFC 7748 section 7), little-endian: with such a key anybody can
/// forge a signature for any message.
const SMALL_ORDER: [[u8; 32]; 5] = [
    [0; 32],
    *b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5,
        0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ],
    [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a,
        0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ],
    [
        0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ],
];

/// Whether an encoded point has a y below 2^255 - 19 (RFC 8032 section 5.1.3) and is not of small order.
fn is_valid_point(point: &[u8]) -> bool {
    // The highest bit is the sign of x.
    let y = point.iter().enumerate().map(|(place, byte)| if place == 31 { byte & 0x7f } else { *byte });
    let is = |known: &[u8]| y.clone().eq(known.iter().copied());
    let is_above =
        y.clone().skip(1).eq(std::iter::repeat_n(0xff, 30).chain([0x7f])) && y.clone().next() >= Some(0xed);
    !is_above && !SMALL_ORDER.iter().any(|known| is(known))
}

fn expect(member: &str, found: &str, wanted: &str) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{member} is not {wanted}")) }
}

fn bytes(member: &str, text: Option<&str>) -> Result<Vec<u8>, String> {
    let text = text.ok_or_else(|| format!("{member} is missing"))?;
    URL_SAFE_NO_PAD.decode(text).map_err(|error| format!("{member}: {error}"))
}

fn without_leading_zeros(mut bytes: Vec<u8>) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.drain(..zeros);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(length: usize) -> String {
        URL_SAFE_NO_PAD.encode(vec![0x81; length])
    }

    fn ec_jwk(crv: &str, length: usize) -> String {
        format!(r#"{{"kty":"EC","crv":"{crv}","x":"{0}","y":"{0}","kid":"k"}}"#, encoded(length))
    }

    fn rsa_jwk(bits: usize, exponent: &str) -> String {
        format!(r#"{{"kty":"RSA","n":"{}","e":"{exponent}"}}"#, encoded(bits / 8))
    }

    fn okp_jwk(length: usize) -> String {
        format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{}"}}"#, encoded(length))
    }

    #[test]
    fn an_ed25519_key_under_which_everybody_can_sign_is_refused() {
        let jwk =
            |x: &[u8]| format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{}"}}"#, URL_SAFE_NO_PAD.encode(x));
        for y in SMALL_ORDER {
            for sign in [0, 0x80] {
                let mut point = y;
                point[31] |= sign;
                assert!(build("EdDSA", &jwk(&point)).is_err(), "{point:x?}");
            }
        }
        // 2^255 - 19 and larger numbers are encodings of smaller ones.
        for first in 0xed..=0xff {
            let mut point = [0xff; 32];
            point[0] = first;
            assert!(build("EdDSA", &jwk(&point)).is_err(), "{point:x?}");
        }
        // RFC 8032 section 7.1, test 1.
        let good = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let good = format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{good}"}}"#);
        assert!(build("EdDSA", &good).is_ok());
    }

    #[test]
    fn a_key_that_fits_its_algorithm_is_built() {
        for (alg, jwk) in [
            ("ES256", ec_jwk("P-256", 32)),
            ("ES384", ec_jwk("P-384", 48)),
            ("RS256", rsa_jwk(2048, "AQAB")),
            ("RS384", rsa_jwk(4096, "AQAB")),
            ("RS512", rsa_jwk(8192, "Aw")),
            ("EdDSA", okp_jwk(32)),
        ] {
            let key = build(alg, &jwk).unwrap_or_else(|fault| panic!("{alg}: {fault}"));
            assert_eq!((key.name, format!("{:?}", key.algorithm).as_str()), (alg, alg));
        }
    }

    #[test]
    fn a_key_that_does_not_fit_is_refused() {
        for (alg, jwk) in [
            ("ES384", ec_jwk("P-256", 32)),
            ("ES256", ec_jwk("P-384", 48)),
            ("ES256", ec_jwk("P-256", 31)),
            ("ES256", ec_jwk("secp256k1", 32)),
            ("ES256", rsa_jwk(2048, "AQAB")),
            ("RS256", ec_jwk("P-256", 32)),
            ("RS256", rsa_jwk(1024, "AQAB")),
            ("RS256", rsa_jwk(16384, "AQAB")),
            ("RS256", rsa_jwk(2048, "AQ")),
            ("RS256", rsa_jwk(2048, "Ag")),
            ("RS256", rsa_jwk(2048, "AQAB=")),
            ("PS256", rsa_jwk(2048, "AQAB")),
            ("EdDSA", okp_jwk(33)),
            ("HS256", r#"{"kty":"oct","k":"c2VjcmV0"}"#.to_owned()),
            ("RS256", r#"{"kty":"oct","k":"c2VjcmV0"}"#.to_owned()),
            ("none", okp_jwk(32)),
            ("", okp_jwk(32)),
            ("EdDSA", "not json".to_owned()),
            ("EdDSA", okp_jwk(32).replace('}', r#","alg":"ES256"}"#)),
            ("EdDSA", okp_jwk(32).replace('}', r#","use":"enc"}"#)),
            ("EdDSA", okp_jwk(32).replace('}', r#","d":"AAAA"}"#)),
        ] {
            assert!(build(alg, &jwk).is_err(), "{alg} {jwk:.60}");
        }
    }
}
