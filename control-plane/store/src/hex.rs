//! Bytes in the form used in names and digests.

/// Formats bytes with two lower-case digits each.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a text consists of this number of lower-case digits.
pub(crate) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lower_case_digits_of_the_expected_number_are_hex() {
        assert_eq!(hex(&[0x0a, 0xff]), "0aff");
        assert!(is_hex("0aff", 4));
        for other in ["", "0af", "0aff0", "0aFf", "0agf", "0af/", "0a\u{e9}"] {
            assert!(!is_hex(other, 4), "{other}");
        }
    }
}
