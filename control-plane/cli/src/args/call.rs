//! The command line of `asp call`.

use clap::Args;
use serde_json::Value;

#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  asp call demo echo --arg message=hello                     a tool over MCP
  asp call demo count --arguments '{\"to\": 3, \"delayMs\": 100}'
  asp call billing invoice --a2a --arg month=2026-10         a skill over A2A
  asp call a2a-conformance tck --a2a --message hello         a skill that takes a text

Standard output has the result, standard error the progress and the questions. A question is asked at the terminal, and
declined without one. A signal cancels the call.
Exit code: 0 if the call succeeded, 1 if not.

Environment:
  ASP_EDGE_URL      URL of the platform [http://127.0.0.1:8080]
  ASP_TOKEN         bearer token
  ASP_TOKEN_FILE    file with the bearer token")]
pub struct CallArgs {
    /// Name of the server, as in its URL
    #[arg(value_name = "SERVER")]
    pub server: String,
    /// Name of the tool, or with --a2a of the skill
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Argument of the call, as JSON or else as a text; repeat for more
    #[arg(long = "arg", value_name = "KEY=VALUE", value_parser = argument)]
    pub named: Vec<(String, Value)>,
    /// Arguments of the call, a JSON object
    #[arg(long, value_name = "JSON", conflicts_with = "named", value_parser = object)]
    pub arguments: Option<Value>,
    /// Calls over A2A
    #[arg(long)]
    pub a2a: bool,
    /// Text for the skill, instead of arguments
    #[arg(long, value_name = "TEXT", requires = "a2a", conflicts_with_all = ["named", "arguments"])]
    pub message: Option<String>,
    /// URL of the platform [default: ASP_EDGE_URL, else http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Prints JSON: the result of MCP, the task or message of A2A
    #[arg(long)]
    pub json: bool,
}

fn argument(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("an argument has the form KEY=VALUE")?;
    if name.is_empty() {
        return Err("an argument has a name before the `=`".to_owned());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

fn object(text: &str) -> Result<Value, String> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("the arguments are one JSON object".to_owned()),
        Err(error) => Err(format!("the arguments are not JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(line: &[&str]) -> Option<CallArgs> {
        let words = ["asp", "call"].iter().chain(line);
        match Cli::try_parse_from(words).ok()?.command {
            Command::Call(args) => Some(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_value_is_json_or_else_a_text() {
        for (text, value) in [
            ("n=5", json!(5)),
            ("n=0.5", json!(0.5)),
            ("n=true", json!(true)),
            ("n=[1]", json!([1])),
            ("n=\"5\"", json!("5")),
            ("n=007", json!("007")),
            ("n=a=b", json!("a=b")),
            ("n=", json!("")),
            ("n=hello world", json!("hello world")),
        ] {
            let args = parse(&["demo", "echo", "--arg", text]).unwrap();
            assert_eq!(args.named, [("n".to_owned(), value)], "{text}");
        }
    }

    #[test]
    fn what_is_not_a_call_is_refused() {
        for line in [
            &["demo"][..],
            &["demo", "echo", "--arg", "n"],
            &["demo", "echo", "--arg", "=5"],
            &["demo", "echo", "--arguments", "[]"],
            &["demo", "echo", "--arguments", "{"],
            &["demo", "echo", "--arguments", "{}", "--arg", "n=5"],
            &["demo", "echo", "--message", "hello"],
            &["demo", "echo", "--a2a", "--message", "hello", "--arg", "n=5"],
            &["demo", "echo", "--a2a", "--message", "hello", "--arguments", "{}"],
        ] {
            assert!(parse(line).is_none(), "{line:?}");
        }
    }

    #[test]
    fn a_text_is_for_a_skill() {
        let args = parse(&["demo", "echo", "--a2a", "--message", "hello", "--json"]).unwrap();
        assert_eq!((args.message.as_deref(), args.a2a, args.json), (Some("hello"), true, true));
        let args = parse(&["demo", "echo", "--arguments", "{\"n\": 5}"]).unwrap();
        assert_eq!((args.arguments, args.a2a), (Some(json!({"n": 5})), false));
    }
}
