//! Debug output of a credential: its destination, never its value.

use std::fmt;

use crate::supervisor::Credential;

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Credential { origin, header, value: _ } = self;
        f.debug_struct("Credential").field("origin", origin).field("header", header).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::AllocateWorkerRequest;

    #[test]
    fn a_request_with_a_credential_prints_no_secret() {
        let credential = Credential {
            origin: "https://crm.example.com".into(),
            header: "x-api-key".into(),
            value: "hunter2".into(),
        };
        let request = AllocateWorkerRequest { credential: Some(credential), ..Default::default() };
        let printed = format!("{request:?}");
        assert!(printed.contains("crm.example.com") && !printed.contains("hunter2"), "{printed}");
    }
}
