//! One SHA-256 over several texts.

use sha2::{Digest, Sha256};

/// Each part is preceded by its length, so that no two lists of parts hash alike.
pub(crate) fn of_parts(parts: &[&str]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(of_parts(&["ab", "c"]), of_parts(&["a", "bc"]));
        assert_ne!(of_parts(&["ab"]), of_parts(&["a", "b"]));
    }
}
