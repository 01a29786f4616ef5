//! The result of a call, as it is printed.

use asp_command::failure::Failure;
use asp_command::print;
use asp_json::Json;
use serde_json::Value;

/// Result of a call.
pub(super) struct CallResult {
    /// The result in the form of its protocol.
    pub(super) whole: Json,
    pub(super) pieces: Vec<Piece>,
    /// Whether the call failed. The pieces say why.
    pub(super) is_error: bool,
}

/// One piece of a result.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Data(Value),
    /// A file elsewhere.
    Link(String),
    /// A file in the result.
    File(String),
}

impl CallResult {
    /// Prints the result on standard output, the reason of a failed call on standard error.
    pub(super) fn print(&self, as_json: bool) -> Result<(), Failure> {
        if as_json {
            print::json(self.whole.view());
        }
        let lines = self.lines();
        if self.is_error {
            print::error(if lines.is_empty() { "the call failed" } else { &lines });
            return Err(Failure::Refused);
        }
        if !as_json && !lines.is_empty() {
            print::line(&lines);
        }
        Ok(())
    }

    /// Returns the pieces as text. Data that is there as text too is left out.
    fn lines(&self) -> String {
        let has_text = self.pieces.iter().any(|piece| matches!(piece, Piece::Text(_)));
        let shown = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(text) | Piece::Link(text) => Some(text.clone()),
            Piece::Data(_) if has_text => None,
            Piece::Data(value) => serde_json::to_string_pretty(value).ok(),
            Piece::File(name) => Some(format!("[{name}: print it with --json]")),
        });
        shown.collect::<Vec<String>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_printed_and_data_only_without_one() {
        let lines =
            |pieces: Vec<Piece>| CallResult { whole: json!({}).into(), pieces, is_error: false }.lines();
        let data = || Piece::Data(json!({"n": 1}));
        assert_eq!(lines(vec![Piece::Text("one".into()), data()]), "one");
        assert_eq!(lines(vec![data()]), "{\n  \"n\": 1\n}");
        let file = Piece::File("image/png".into());
        assert_eq!(
            lines(vec![Piece::Link("https://a".into()), file]),
            "https://a\n[image/png: print it with --json]"
        );
        assert_eq!(lines(Vec::new()), "");
    }

    #[test]
    fn a_failed_call_is_a_refusal() {
        let failed = CallResult { whole: json!({}).into(), pieces: Vec::new(), is_error: true };
        assert!(matches!(failed.print(false), Err(Failure::Refused)));
    }
}
