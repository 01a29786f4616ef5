//! Finding tools by words: BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009) over names,
//! descriptions and the names of arguments.
//!
//! Keeps true: what a searcher cannot see has no part in what they find, neither as a result nor in any score, because
//! how rare a word is and how long texts are is counted among what they see (I-10); the same words find the same in the
//! same order; what is kept of one tool is bounded, and so is what is read of a question.

use std::collections::HashMap;

use asp_proto::snapshot::{Kind, Primitive};
use serde_json::Value;

/// Most words that are kept of one tool.
const MAX_WORDS: usize = 2_000;
/// Most different words of a question.
const MAX_ASKED: usize = 32;
/// Longest word in characters; a longer one is cut.
const MAX_WORD: usize = 48;
/// How often a word counts that stands in a name, a title or a tag.
const NAME: u32 = 3;
const TITLE: u32 = 2;
const TEXT: u32 = 1;
/// The usual parameters: how fast a word that comes again counts less, and how much long texts count less.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// The words of the tools of one server, in list order.
#[derive(Default)]
pub struct SearchIndex {
    tools: Vec<Words>,
}

/// The words of one tool, and how often each comes.
#[derive(Default)]
struct Words {
    counts: HashMap<String, u32>,
    length: u32,
}

impl SearchIndex {
    /// Of primitives and the names by which they are listed.
    pub fn of<'a>(entries: impl Iterator<Item = (&'a Primitive, &'a str)>) -> SearchIndex {
        SearchIndex { tools: entries.map(|(primitive, name)| words(primitive, name)).collect() }
    }

    /// The places, among the entries the index was made of, of those that have a word of `asked`, the best first. Only
    /// those that `shows` count.
    pub fn find(&self, asked: &str, mut shows: impl FnMut(usize) -> bool) -> Vec<usize> {
        let asked = question(asked);
        let seen: Vec<(usize, &Words)> = self.tools.iter().enumerate().filter(|(at, _)| shows(*at)).collect();
        let all = seen.len() as f64;
        let length = seen.iter().map(|(_, words)| f64::from(words.length)).sum::<f64>() / all.max(1.0);
        let mut scores = vec![0.0; seen.len()];
        for word in &asked {
            let have = seen.iter().filter(|(_, words)| words.counts.contains_key(word)).count() as f64;
            let rarity = (1.0 + (all - have + 0.5) / (have + 0.5)).ln();
            for (score, (_, words)) in scores.iter_mut().zip(&seen) {
                let count = f64::from(words.counts.get(word).copied().unwrap_or(0));
                let relative = f64::from(words.length) / length.max(1.0);
                *score += rarity * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * relative));
            }
        }
        let mut found: Vec<(f64, usize)> =
            scores.into_iter().zip(&seen).map(|(score, (at, _))| (score, *at)).collect();
        found.retain(|(score, _)| *score > 0.0);
        // Of equals the one that is listed first.
        found.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        found.into_iter().map(|(_, at)| at).collect()
    }
}

/// Whether a primitive is what is searched for.
pub fn is_tool(primitive: &Primitive) -> bool {
    matches!(primitive.kind(), Kind::Tool | Kind::Task)
}

fn words(primitive: &Primitive, name: &str) -> Words {
    let mut words = Words::default();
    words.add(name, NAME);
    words.add(&primitive.id, NAME);
    words.add(&primitive.title, TITLE);
    words.add(&primitive.summary, TEXT);
    if let Ok(schema) = serde_json::from_str::<Value>(&primitive.input_schema) {
        words.add_properties(&schema);
    }
    words
}

impl Words {
    fn add(&mut self, text: &str, weight: u32) {
        for word in split(text) {
            if self.counts.len() >= MAX_WORDS {
                return;
            }
            *self.counts.entry(word).or_default() += weight;
            self.length += weight;
        }
    }

    /// The names of arguments, at any depth of the schema, and what it says of them.
    fn add_properties(&mut self, schema: &Value) {
        match schema {
            Value::Object(members) => {
                for (name, value) in members {
                    match (name.as_str(), value) {
                        ("properties", Value::Object(properties)) => {
                            for (name, schema) in properties {
                                self.add(name, TEXT);
                                self.add_properties(schema);
                            }
                        }
                        ("description" | "title", Value::String(text)) => self.add(text, TEXT),
                        ("default" | "const" | "enum" | "examples", _) => {}
                        (_, value) => self.add_properties(value),
                    }
                }
            }
            Value::Array(all) => all.iter().for_each(|schema| self.add_properties(schema)),
            _ => {}
        }
    }
}

/// The different words of a question, in its order.
fn question(text: &str) -> Vec<String> {
    let mut asked = Vec::new();
    for word in split(text) {
        if asked.len() == MAX_ASKED {
            break;
        }
        if !asked.contains(&word) {
            asked.push(word);
        }
    }
    asked
}

/// Words as names and sentences have them: `getUserName`, `get_user_name` and "gets user names" are the same three.
fn split(text: &str) -> impl Iterator<Item = String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    for now in text.chars() {
        let turns = before.is_lowercase() && now.is_uppercase();
        if (turns || !now.is_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if now.is_alphanumeric() && word.chars().count() < MAX_WORD {
            word.extend(now.to_lowercase());
        }
        before = now;
    }
    words.push(word);
    words.into_iter().filter(|word| !word.is_empty()).map(singular)
}

/// Without the `s` of a plural or of a verb.
fn singular(mut word: String) -> String {
    if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
        word.pop();
    }
    word
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn index(rows: &[(&str, &str, Value)]) -> SearchIndex {
        let tools = rows.iter().map(|(id, summary, schema)| {
            let input_schema = json!({"type": "object", "properties": schema}).to_string();
            let primitive = Primitive {
                id: (*id).into(),
                summary: (*summary).into(),
                input_schema,
                ..Primitive::default()
            };
            words(&primitive, id)
        });
        SearchIndex { tools: tools.collect() }
    }

    fn catalog() -> SearchIndex {
        index(&[
            ("create_invoice", "Creates an invoice for a customer.", json!({"customerId": {}, "amount": {}})),
            ("list_invoices", "Lists the invoices of a month.", json!({"month": {"description": "1 to 12"}})),
            ("send_mail", "Sends a message to somebody.", json!({"to": {}, "subject": {}, "body": {}})),
            ("weather.forecast", "The weather of the next days in a city.", json!({"city": {}, "days": {}})),
            ("delete_customer", "Removes a customer and all invoices.", json!({"customerId": {}})),
        ])
    }

    #[test]
    fn the_best_comes_first() {
        let catalog = catalog();
        for (asked, expected) in [
            ("create an invoice", &[0, 1, 4][..]),
            ("customers", &[4, 0]),
            ("Customer ID", &[4, 0]),
            ("subject", &[2]),
            ("WEATHER forecasts for some cities and a city", &[3]),
            ("sendMail", &[2]),
            ("nothing like it", &[]),
            ("", &[]),
            ("!?", &[]),
        ] {
            let found: Vec<usize> = catalog.find(asked, |_| true);
            let found: Vec<usize> = match asked {
                // Articles find too; what matters stands before them.
                "create an invoice" | "WEATHER forecasts for some cities and a city" => {
                    found.into_iter().take(expected.len()).collect()
                }
                _ => found,
            };
            assert_eq!(found, expected, "{asked:?}");
        }
    }

    /// I-10
    #[test]
    fn what_is_hidden_changes_nothing_that_is_found() {
        let rows = [
            ("a", "pay salary", json!({})),
            ("b", "pay rent, pay it now", json!({})),
            ("c", "salary of the month", json!({})),
        ];
        let whole = index(&rows);
        let without = index(&rows[..2]);
        for asked in ["pay", "salary", "pay salary month", "rent now"] {
            assert_eq!(whole.find(asked, |at| at < 2), without.find(asked, |_| true), "{asked}");
        }
    }

    #[test]
    fn long_questions_and_long_texts_are_bounded() {
        let long = (0..MAX_WORDS * 2).map(|n| format!("w{n}x ")).collect::<String>();
        let one = index(&[("a", &long, json!({}))]);
        assert_eq!(one.tools[0].counts.len(), MAX_WORDS);
        assert_eq!(question(&long).len(), MAX_ASKED);
        assert_eq!(question(&"x".repeat(1_000_000))[0].len(), MAX_WORD);
    }

    #[test]
    fn of_equals_the_one_that_is_listed_first_comes_first() {
        let same = index(&[("x", "pay", json!({})), ("x", "pay", json!({}))]);
        assert_eq!(same.find("pay", |_| true), [0, 1]);
    }
}
