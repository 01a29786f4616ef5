//! Debug output of messages with a plaintext: never the plaintext.

use std::fmt;

use crate::kms::{DecryptResponse, EncryptRequest};

impl fmt::Debug for EncryptRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptRequest").field("uid", &self.uid).finish_non_exhaustive()
    }
}

impl fmt::Debug for DecryptResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecryptResponse").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_with_a_plaintext_does_not_print_it() {
        let request = EncryptRequest { plaintext: b"hunter2".to_vec(), uid: "u1".into() };
        assert_eq!(format!("{request:?}"), r#"EncryptRequest { uid: "u1", .. }"#);
        assert_eq!(format!("{:?}", DecryptResponse { plaintext: vec![7] }), "DecryptResponse { .. }");
    }
}
