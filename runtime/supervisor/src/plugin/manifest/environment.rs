//! The variables that a stdio server's package defines: constants, paths of its own, and named secrets of the operator.
//!
//! Refuses the runtime's own variables, and those that a dynamic loader obeys.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::is_relative;
use crate::secrets::is_secret_name;

const MAX_VARIABLES: usize = 64;
const MAX_PATHS: usize = 16;
const MAX_NAME: usize = 128;
const MAX_VALUE: usize = 4096;
/// The path that stands for the package itself.
const PACKAGE: &str = ".";
/// Variables set by the runtime, each also in lower case.
const OWN: [&str; 9] =
    ["HOME", "TMPDIR", "PATH", "LANG", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "GLIBC_TUNABLES"];

/// Variables by name.
pub type Variables = BTreeMap<String, Variable>;

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Variable {
    Value(String),
    /// Paths relative to the package, joined by `:`.
    Paths(Vec<String>),
    /// The name of a secret; unset if the caller may not use it.
    Secret(String),
}

pub(super) fn check(variables: &Variables) -> Result<(), String> {
    if variables.len() > MAX_VARIABLES {
        return Err(format!("env has more than {MAX_VARIABLES} variables"));
    }
    for (name, variable) in variables {
        if !is_variable(name) {
            return Err(format!("env.{name} is not a variable that a package may set"));
        }
        let fits = match variable {
            Variable::Value(value) => value.len() <= MAX_VALUE && !value.contains('\0'),
            Variable::Paths(paths) => {
                let is_own = |path: &String| path == PACKAGE || is_relative(path) && !path.contains(':');
                (1..=MAX_PATHS).contains(&paths.len()) && paths.iter().all(is_own)
            }
            Variable::Secret(secret) => is_secret_name(secret),
        };
        if !fits {
            return Err(format!("env.{name} has no value that a variable may have"));
        }
    }
    Ok(())
}

fn is_variable(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let upper = name.to_ascii_uppercase();
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(plain)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !OWN.contains(&upper.as_str())
        && !upper.starts_with("ASP_")
        && !upper.starts_with("LD_")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_package_sets_its_own_variables_and_none_of_the_runtimes() {
        let check = |env: serde_json::Value| check(&serde_json::from_value(env).unwrap());
        check(json!({"PYTHONPATH": {"paths": ["lib", "."]}, "_key2": {"secret": "crm.key"}, "NODE_ENV": {"value": ""}}))
            .unwrap();
        for refused in [
            json!({"HOME": {"value": "/"}}),
            json!({"https_proxy": {"value": "x"}}),
            json!({"ASP_WORKER_ID": {"value": "x"}}),
            json!({"LD_PRELOAD": {"paths": ["x.so"]}}),
            json!({"A=B": {"value": "x"}}),
            json!({"1A": {"value": "x"}}),
            json!({"": {"value": "x"}}),
            json!({"A": {"value": "x\0"}}),
            json!({"A": {"paths": []}}),
            json!({"A": {"paths": ["../x"]}}),
            json!({"A": {"paths": ["/etc"]}}),
            json!({"A": {"paths": ["a:/etc"]}}),
            json!({"A": {"secret": ""}}),
            json!({"A": {"secret": "a/b"}}),
        ] {
            assert!(check(refused.clone()).is_err(), "{refused}");
        }
    }
}
