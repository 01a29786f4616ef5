//! Tool search by words: BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009) over names,
//! descriptions and argument names.
//!
//! A word of a query also finds its other forms and what it commonly stands for, with less weight (`vocabulary.rs`).
//!
//! Keeps true: tools hidden from a searcher affect neither the results nor any score, because word frequencies and
//! text lengths are computed over visible tools only (I-10); equal queries give equal results in the same order; the
//! indexed words of a tool and the words read from a query are bounded.

mod vocabulary;

use std::collections::HashMap;
use std::iter;

use asp_proto::snapshot::{Kind, Primitive};
use serde_json::Value;

/// Maximum number of distinct words indexed for one tool.
const MAX_WORDS: usize = 2_000;
/// Maximum number of distinct words in a query.
const MAX_QUERY_WORDS: usize = 16;
/// Maximum length of a word in characters; the rest is cut off.
const MAX_WORD: usize = 48;
/// Weight of a word in a name; [`TITLE`] and [`TEXT`] apply to titles and to all other texts.
const NAME: u32 = 3;
const TITLE: u32 = 2;
const TEXT: u32 = 1;
/// Minimum length of a word without its ending, in characters.
const MIN_BASE: usize = 3;
/// Weights of another form of a query's word, and of a word that it stands for.
const FORM: f64 = 0.8;
const MEANING: f64 = 0.75;
/// The usual BM25 parameters: how fast repetitions of a word lose weight, and how much the length of a text counts.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Words of one server's tools, in list order.
#[derive(Default)]
pub struct SearchIndex {
    tools: Vec<Words>,
}

/// Weighted word counts of one tool.
#[derive(Default)]
struct Words {
    counts: HashMap<String, u32>,
    length: u32,
}

impl SearchIndex {
    /// Indexes primitives under the names by which they are listed.
    pub fn of<'a>(entries: impl Iterator<Item = (&'a Primitive, &'a str)>) -> SearchIndex {
        SearchIndex { tools: entries.map(|(primitive, name)| words(primitive, name)).collect() }
    }

    /// Returns the positions of entries that contain a word of `query`, best match first. Entries for which `shows`
    /// is false are ignored.
    pub fn find(&self, query: &str, mut shows: impl FnMut(usize) -> bool) -> Vec<usize> {
        find_among(&[(self, "")], query, |_, at| shows(at)).into_iter().map(|(_, at)| at).collect()
    }
}

/// A visible tool in a search.
struct Candidate<'a> {
    /// Positions of its index and in it.
    at: (usize, usize),
    words: &'a Words,
    /// Words of its server's name.
    of_server: &'a [String],
}

impl Candidate<'_> {
    fn count(&self, word: &str) -> u32 {
        let of_server = if self.of_server.iter().any(|own| own == word) { TITLE } else { 0 };
        self.words.counts.get(word).copied().unwrap_or(0) + of_server
    }
}

/// Searches the tools of several servers as one list. Each index comes with the name of its server, whose words count as
/// words of every tool. Returns the positions of index and entry of the tools that contain a word of `query`, best match
/// first. Entries for which `shows` is false are ignored.
pub fn find_among(
    indexes: &[(&SearchIndex, &str)],
    query: &str,
    mut shows: impl FnMut(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let query = query_words(query);
    let servers: Vec<Vec<String>> = indexes.iter().map(|(_, server)| split(server).collect()).collect();
    let mut seen: Vec<Candidate<'_>> = Vec::new();
    for (index, ((tools, _), of_server)) in indexes.iter().zip(&servers).enumerate() {
        let tools = tools.tools.iter().enumerate().filter(|(at, _)| shows(index, *at));
        seen.extend(tools.map(move |(at, words)| Candidate { at: (index, at), words, of_server }));
    }
    let all = seen.len() as f64;
    let length = seen.iter().map(|tool| f64::from(tool.words.length)).sum::<f64>() / all.max(1.0);
    let mut scores = vec![0.0; seen.len()];
    for said in &query {
        let mut best = vec![0.0_f64; seen.len()];
        for (word, weight) in alternatives(said) {
            let counts: Vec<u32> = seen.iter().map(|tool| tool.count(&word)).collect();
            let have = counts.iter().filter(|count| **count > 0).count() as f64;
            let rarity = (1.0 + (all - have + 0.5) / (have + 0.5)).ln();
            for ((best, tool), count) in best.iter_mut().zip(&seen).zip(counts) {
                let count = f64::from(count);
                let relative = f64::from(tool.words.length) / length.max(1.0);
                let score = rarity * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * relative));
                *best = best.max(weight * score);
            }
        }
        scores.iter_mut().zip(best).for_each(|(score, best)| *score += best);
    }
    let mut found: Vec<(f64, (usize, usize))> =
        scores.into_iter().zip(&seen).map(|(score, tool)| (score, tool.at)).collect();
    found.retain(|(score, _)| *score > 0.0);
    // Equal scores keep list order.
    found.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
    found.into_iter().map(|(_, at)| at).collect()
}

/// Whether a primitive can be found by search.
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

    /// Adds the names and descriptions of arguments, at any depth of the schema.
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

/// Returns the distinct words of a query, in order.
fn query_words(text: &str) -> Vec<String> {
    let mut query = Vec::new();
    for word in as_written(text).filter(|word| !vocabulary::is_stop_word(word)).map(singular) {
        if query.len() == MAX_QUERY_WORDS {
            break;
        }
        if !query.contains(&word) {
            query.push(word);
        }
    }
    query
}

/// Returns a word of a query and the words that count as it, each once and with its weight.
fn alternatives(said: &str) -> Vec<(String, f64)> {
    let forms = base_forms(said);
    let mut all = vec![(said.to_owned(), 1.0)];
    let others = forms.iter().map(|form| (form.as_str(), FORM));
    let meant = iter::once(said).chain(forms.iter().map(String::as_str)).flat_map(vocabulary::meanings);
    let meanings = meant.map(|meaning| (meaning, MEANING));
    for (word, weight) in others.chain(meanings) {
        if all.iter().all(|(known, _)| known != word) {
            all.push((word.to_owned(), weight));
        }
    }
    all
}

/// Returns the words of which a word may be a form: `merging` of `merg`, `merge`; `running` of `runn`, `runne`, `run`.
fn base_forms(word: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for base in ["ing", "ed", "er"].iter().filter_map(|ending| word.strip_suffix(*ending)) {
        let length = base.chars().count();
        if length < MIN_BASE {
            continue;
        }
        forms.extend([base.to_owned(), format!("{base}e")]);
        let mut last = base.chars().rev();
        if length > MIN_BASE && last.next() == last.next() {
            let mut shorter = base.to_owned();
            shorter.pop();
            forms.push(shorter);
        }
    }
    forms
}

/// Splits names and sentences into words: `getUserName`, `get_user_name` and "gets user names" give the same
/// three.
fn split(text: &str) -> impl Iterator<Item = String> {
    as_written(text).map(singular)
}

fn as_written(text: &str) -> impl Iterator<Item = String> {
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
    words.into_iter().filter(|word| !word.is_empty())
}

/// Strips the ending of a plural or a verb.
fn singular(mut word: String) -> String {
    if let Some(stem) = word.strip_suffix("ies").filter(|stem| stem.len() > 1) {
        return format!("{stem}y");
    }
    if word.len() > 4 && ["sses", "ches", "shes", "xes"].iter().any(|ending| word.ends_with(*ending)) {
        word.truncate(word.len() - 2);
    } else if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
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
        for (query, expected) in [
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
            let found: Vec<usize> = catalog.find(query, |_| true);
            let found: Vec<usize> = match query {
                // Articles match too, but rank lower.
                "create an invoice" | "WEATHER forecasts for some cities and a city" => {
                    found.into_iter().take(expected.len()).collect()
                }
                _ => found,
            };
            assert_eq!(found, expected, "{query:?}");
        }
    }

    /// Invariant I-10.
    #[test]
    fn what_is_hidden_changes_nothing_that_is_found() {
        let rows = [
            ("a", "pay salary", json!({})),
            ("b", "pay rent, pay it now", json!({})),
            ("c", "salary of the month", json!({})),
        ];
        let whole = index(&rows);
        let without = index(&rows[..2]);
        for query in ["pay", "salary", "pay salary month", "rent now"] {
            assert_eq!(whole.find(query, |at| at < 2), without.find(query, |_| true), "{query}");
        }
    }

    #[test]
    fn long_questions_and_long_texts_are_bounded() {
        let long = (0..MAX_WORDS * 2).map(|n| format!("w{n}x ")).collect::<String>();
        let one = index(&[("a", &long, json!({}))]);
        assert_eq!(one.tools[0].counts.len(), MAX_WORDS);
        assert_eq!(query_words(&long).len(), MAX_QUERY_WORDS);
        assert_eq!(query_words(&"x".repeat(1_000_000))[0].len(), MAX_WORD);
    }

    #[test]
    fn forms_and_meanings_of_a_word_are_found_and_the_word_itself_comes_first() {
        let catalog = catalog();
        for (query, expected) in [
            ("making an invoice", 0),
            ("erase the client", 4),
            ("will it rain?", 3),
            ("drop the customer", 4),
            ("mailing somebody", 2),
        ] {
            assert_eq!(catalog.find(query, |_| true).first(), Some(&expected), "{query}");
        }
        let all = |word: &str| alternatives(word).into_iter().map(|(word, _)| word).collect::<Vec<_>>();
        assert_eq!(all("running"), ["running", "runn", "runne", "run"]);
        assert_eq!(all("repo"), ["repo", "repository"]);
        let same = index(&[("x", "remove it", json!({})), ("x", "delete it", json!({}))]);
        assert_eq!(same.find("remove", |_| true), [0, 1]);
    }

    #[test]
    fn plurals_are_found_by_their_singular() {
        let singulars = ["policies", "branches", "indexes", "classes", "addresses", "status", "ties", "gas"]
            .map(|word| singular(word.to_owned()));
        assert_eq!(singulars, ["policy", "branch", "index", "class", "address", "statu", "tie", "gas"]);
    }

    /// The catalogue of 20 servers with 25 tools each, as one list for each server.
    fn servers(tools: &str) -> Vec<(String, Vec<String>, SearchIndex)> {
        let mut servers: Vec<(String, Vec<String>, SearchIndex)> = Vec::new();
        for row in tools.lines().filter(|line| !line.starts_with('#')) {
            let mut cells = row.split('\t');
            let mut cell = || cells.next().unwrap().to_owned();
            let server = cell();
            let id = cell();
            let summary = cell();
            let arguments = cell();
            let properties: Value = arguments.split(", ").map(|name| (name.to_owned(), json!({}))).collect();
            let input_schema = json!({"type": "object", "properties": properties}).to_string();
            let primitive = Primitive { id: id.clone(), summary, input_schema, ..Primitive::default() };
            if servers.last().is_none_or(|(last, _, _)| *last != server) {
                servers.push((server, Vec::new(), SearchIndex::default()));
            }
            let (_, names, index) = servers.last_mut().unwrap();
            index.tools.push(words(&primitive, &id));
            names.push(id);
        }
        servers
    }

    /// `tests/catalog/questions.tsv`: the last hundred were written after the search and its words.
    #[test]
    fn the_right_one_of_five_hundred_tools_is_among_the_first_five() {
        let servers = servers(include_str!("../../../tests/catalog/tools.tsv"));
        assert_eq!(servers.iter().map(|(_, names, _)| names.len()).sum::<usize>(), 500);
        let indexes: Vec<_> = servers.iter().map(|(server, _, index)| (index, server.as_str())).collect();
        let questions = include_str!("../../../tests/catalog/questions.tsv");
        let questions: Vec<_> = questions.lines().filter_map(|line| line.split_once('\t')).skip(1).collect();
        let is_found = |(question, tool): &(&str, &str)| {
            let found = find_among(&indexes, question, |_, _| true);
            let mut names = found.iter().take(5).map(|(server, at)| {
                let (server, names, _) = &servers[*server];
                format!("{server}__{}", names[*at])
            });
            names.any(|name| name == *tool)
        };
        let missed = |questions: &[(&'static str, &'static str)]| {
            questions.iter().copied().filter(|question| !is_found(question)).collect::<Vec<_>>()
        };
        assert_eq!(questions.len(), 300);
        let all = missed(&questions);
        let unseen = missed(&questions[200..]);
        assert!(
            all.len() <= 15 && unseen.len() <= 5,
            "{} of 300 and {} of the last 100: {all:#?}",
            all.len(),
            unseen.len()
        );
    }

    #[test]
    fn a_servers_name_counts_for_all_its_tools() {
        let list = || index(&[("list", "Lists them.", json!({})), ("get", "Returns one.", json!({}))]);
        let one = list();
        let other = list();
        let indexes = [(&one, "jira"), (&other, "git-hub")];
        let find = |query: &str| find_among(&indexes, query, |_, _| true);
        assert_eq!(find("hub list").first(), Some(&(1, 0)));
        assert_eq!(find("Jira"), [(0, 0), (0, 1)]);
        assert_eq!(find_among(&indexes, "jira", |server, _| server == 1), []);
    }

    #[test]
    fn of_equals_the_one_that_is_listed_first_comes_first() {
        let same = index(&[("x", "pay", json!({})), ("x", "pay", json!({}))]);
        assert_eq!(same.find("pay", |_| true), [0, 1]);
    }
}
