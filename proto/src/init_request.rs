//! Debug output of a session's first message: the names of its secrets, never their values.

use std::fmt;

use crate::plugin::InitRequest;

impl fmt::Debug for InitRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InitRequest { ctx, env, secrets } = self;
        let names: Vec<&String> = secrets.keys().collect();
        f.debug_struct("InitRequest").field("ctx", ctx).field("env", env).field("secrets", &names).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plugin::{ClientMessage, client_message::Payload};

    #[test]
    fn a_first_message_with_secrets_prints_their_names_alone() {
        let secrets = BTreeMap::from([("crm-key".to_owned(), "hunter2".to_owned())]);
        let init = Payload::Init(InitRequest { secrets, ..InitRequest::default() });
        let printed = format!("{:?}", ClientMessage { payload: Some(init) });
        assert!(printed.contains("crm-key") && !printed.contains("hunter2"), "{printed}");
    }
}
