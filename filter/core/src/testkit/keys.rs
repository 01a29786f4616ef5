//! Throw-away signing keys by name: `dev`, `other` and `attacker` (ES256), `es384`, `rs256`, `rs384`, `rs512`, `eddsa`.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde_json::Value;

use super::SigningKey;

/// Set of keys generated for one test run.
pub struct Keys {
    keys: HashMap<&'static str, SigningKey>,
}

impl Keys {
    /// Returns the keys of this test process; generating RSA keys takes seconds.
    pub fn shared() -> &'static Keys {
        static KEYS: OnceLock<Keys> = OnceLock::new();
        KEYS.get_or_init(Keys::generate)
    }

    pub fn generate() -> Keys {
        let keys = HashMap::from([
            ("dev", SigningKey::es256()),
            ("other", SigningKey::es256()),
            ("attacker", SigningKey::es256()),
            ("es384", SigningKey::es384()),
            ("rs256", SigningKey::rs256()),
            ("rs384", SigningKey::rs384()),
            ("rs512", SigningKey::rs512()),
            ("eddsa", SigningKey::eddsa()),
        ]);
        Keys { keys }
    }

    /// Returns the JOSE name of the key's algorithm.
    pub fn alg(&self, name: &str) -> &'static str {
        self.find(name).alg()
    }

    /// Returns the public key as JWK JSON.
    pub fn jwk(&self, name: &str) -> Value {
        self.find(name).jwk()
    }

    /// Returns the JOSE signature over `message`, raw bytes.
    pub fn sign(&self, name: &str, message: &[u8]) -> Vec<u8> {
        self.find(name).sign(message)
    }

    fn find(&self, name: &str) -> &SigningKey {
        self.keys.get(name).unwrap_or_else(|| panic!("no key named {name}"))
    }
}
