//! `asp explain --token FILE`: a call by the holder of a token, which the control plane evaluates.
//!
//! Keeps true: the token is read from a file or standard input only, and printed nowhere.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use asp_command::failure::Failure;
use asp_command::print;
use asp_control::admin::explain::Question;
use asp_platform::secret::Secret;
use asp_platform::time::rfc3339;
use serde_json::{Value, json};

use crate::commands::answer::{number, text, texts};
use crate::commands::client::AdminClient;

/// Maximum size of the file in bytes; no token is as long.
const MAX_FILE: u64 = 64 * 1024;

/// Asks about the call of the token in a file, and fills the caller into the question.
pub(super) async fn ask(api: &AdminClient, file: &Path, question: &mut Question) -> Result<Value, Failure> {
    let token = read(file)?;
    if question.protocol.is_empty() {
        "mcp".clone_into(&mut question.protocol);
    }
    let mut body = json!({
        "token": token.expose(),
        "server": question.server,
        "primitive": question.primitive,
        "protocol": question.protocol,
    });
    if let (Some(arguments), Some(members)) = (&question.arguments, body.as_object_mut()) {
        members.insert("arguments".to_owned(), arguments.clone());
    }
    let answer = api.post("/api/explain", &body).await?.accepted()?;
    if let Some(caller) = answer.get("caller") {
        complete(question, caller);
        print::note(&describe(caller));
    }
    Ok(answer)
}

/// Reads a token from a file or, for `-`, standard input.
fn read(file: &Path) -> Result<Secret, Failure> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(MAX_FILE).read_to_string(&mut text)
    } else {
        let open = std::fs::File::open(file).with_context(|| format!("read {}", file.display()))?;
        open.take(MAX_FILE).read_to_string(&mut text)
    };
    let text = Secret::new(text);
    read.with_context(|| format!("read the token from {}", file.display()))?;
    match text.expose().trim() {
        "" => Err(Failure::bad("--token", "the file is empty")),
        token => Ok(Secret::from(token)),
    }
}

fn complete(question: &mut Question, caller: &Value) {
    for (part, member) in [
        (&mut question.org, "org"),
        (&mut question.user, "user"),
        (&mut question.issuer, "issuer"),
        (&mut question.wcit, "wcit"),
    ] {
        text(caller, member).clone_into(part);
    }
    let list = |member: &str| texts(caller, member).into_iter().map(str::to_owned).collect();
    (question.groups, question.scopes) = (list("groups"), list("scopes"));
}

fn describe(caller: &Value) -> String {
    let [org, user, issuer] = ["org", "user", "issuer"].map(|member| text(caller, member));
    let listed = |member: &str| match texts(caller, member).join(", ") {
        list if list.is_empty() => "none".to_owned(),
        list => list,
    };
    format!(
        "the token is of {user} of {org}, by the issuer {issuer}; groups: {}; scopes: {}; it expires at {}",
        listed("groups"),
        listed("scopes"),
        rfc3339(number(caller, "expiresAt").saturating_mul(1_000))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_of_a_token_becomes_that_of_the_question() {
        let question = json!({ "org": "", "server": "demo", "primitive": "echo", "protocol": "mcp" });
        let mut question: Question = serde_json::from_value(question).unwrap();
        let caller = json!({ "org": "acme", "user": "alice", "issuer": "login", "wcit": "t-1", "groups": ["ops"],
            "scopes": [], "expiresAt": 1 });
        complete(&mut question, &caller);
        assert_eq!((question.org.as_str(), question.user.as_str()), ("acme", "alice"));
        assert_eq!((question.issuer.as_str(), question.wcit.as_str()), ("login", "t-1"));
        assert_eq!((question.groups.len(), question.scopes.len()), (1, 0));
        assert_eq!(
            describe(&caller),
            "the token is of alice of acme, by the issuer login; groups: ops; scopes: none; it expires at \
             1970-01-01T00:00:01.000Z"
        );
    }

    #[test]
    fn a_file_without_a_token_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, " \n").unwrap();
        assert!(read(&file).is_err());
        std::fs::write(&file, "a.b.c\n").unwrap();
        assert_eq!(read(&file).unwrap().expose(), "a.b.c");
        assert!(read(&directory.path().join("none")).is_err());
    }
}
