//! The subset of DER (X.690) that Envoy's `verify_signature` needs: public keys as SubjectPublicKeyInfo (RFC 5280
//! section 4.1) and ECDSA signatures as a sequence of two integers (RFC 3279 section 2.2.3).

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;

/// rsaEncryption with NULL parameters (RFC 8017 appendix A.1).
const RSA: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
/// id-ecPublicKey with secp256r1 (RFC 5480 section 2.1.1).
const P256: &[u8] = &[6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
/// id-ecPublicKey with secp384r1.
const P384: &[u8] = &[6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 5, 0x2b, 0x81, 4, 0, 0x22];

pub(super) fn rsa_key(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let key = element(SEQUENCE, &[integer(modulus), integer(exponent)].concat());
    key_info(RSA, &key)
}

/// Encodes an EC key; `None` for a point on another curve.
pub(super) fn ec_key(point: &[u8]) -> Option<Vec<u8>> {
    match point.len() {
        65 => Some(key_info(P256, point)),
        97 => Some(key_info(P384, point)),
        _ => None,
    }
}

/// Converts JOSE's `r || s` (RFC 7518 section 3.4) into DER; `None` for any other length.
pub(super) fn ecdsa_signature(raw: &[u8], coordinate: usize) -> Option<Vec<u8>> {
    if raw.len() != coordinate * 2 {
        return None;
    }
    let (r, s) = raw.split_at_checked(coordinate)?;
    Some(element(SEQUENCE, &[integer(r), integer(s)].concat()))
}

fn key_info(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    // A bit string starts with the number of unused bits.
    let bits = [&[0], key].concat();
    element(SEQUENCE, &[element(SEQUENCE, algorithm), element(BIT_STRING, &bits)].concat())
}

/// Encodes a non-negative integer in as few bytes as possible.
fn integer(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let mut digits = bytes.get(zeros..).unwrap_or_default().to_vec();
    if digits.first().is_none_or(|first| first & 0x80 != 0) {
        digits.insert(0, 0);
    }
    element(INTEGER, &digits)
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    match u8::try_from(content.len()) {
        Ok(length @ 0..=0x7f) => bytes.push(length),
        _ => {
            let length: Vec<u8> =
                content.len().to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            bytes.push(0x80 | length.len() as u8);
            bytes.extend(length);
        }
    }
    bytes.extend_from_slice(content);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_minimal_and_never_negative() {
        assert_eq!(integer(&[0, 0, 1]), [2, 1, 1]);
        assert_eq!(integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[0, 0]), [2, 1, 0]);
    }

    #[test]
    fn long_elements_have_long_lengths() {
        assert_eq!(element(4, &[7; 127])[..3], [4, 127, 7]);
        assert_eq!(element(4, &[7; 128])[..4], [4, 0x81, 128, 7]);
        assert_eq!(element(4, &[7; 256])[..5], [4, 0x82, 1, 0, 7]);
    }

    #[test]
    fn a_signature_of_another_length_is_none() {
        assert!(ecdsa_signature(&[1; 63], 32).is_none() && ecdsa_signature(&[], 32).is_none());
        assert_eq!(ecdsa_signature(&[1, 0x80], 1).unwrap(), [0x30, 7, 2, 1, 1, 2, 2, 0, 0x80]);
    }
}
