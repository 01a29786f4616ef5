//! Deterministic random JSON texts for tests of code that reads JSON.

/// Xorshift generator; the same seed yields the same texts.
pub struct Generator {
    state: u64,
}

const PIECES: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u",
    "0",
    "-",
    "1e400",
    "e",
    ".",
    "null",
    "true",
    " ",
    "\n",
    "\\ud800",
    "\u{feff}",
    "\"method\"",
    "\"id\":1,",
    "\\\"",
    "1",
];
const KEYS: [&str; 10] =
    ["jsonrpc", "method", "\\u006dethod", "id", "params", "name", "uri", "_meta", "result", "x y"];
const STRINGS: [&str; 12] = [
    "\\ud83d",
    "\\udc00\\uD800x",
    "2.0",
    "tools/call",
    "resources/read",
    "echo",
    "a\\u00e4\\n",
    "\\ud83d\\ude00",
    "",
    "\u{e4}",
    "\\/\\\\",
    "\\u0000",
];
const NUMBERS: [&str; 13] = [
    "340282366920938463463374607431768211455",
    "0.123456789012345678901234567890",
    "1e400",
    "0",
    "-0",
    "1",
    "12345678901234567890",
    "1.5",
    "-2e-7",
    "1E3",
    "1e308",
    "9007199254740993",
    "-1",
];

impl Generator {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Generator {
        Generator { state: seed | 1 }
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % bound
    }

    /// Returns an element of the list.
    pub fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list.get(self.below(list.len())).copied().unwrap_or_default()
    }

    fn space(&mut self) -> &'static str {
        self.pick(&["", "", "", " ", "\n\t"])
    }

    /// Returns a well-formed value with at most `depth` levels.
    pub fn value(&mut self, depth: usize) -> String {
        let kinds = if depth == 0 { 4 } else { 8 };
        let text = match self.below(kinds) {
            0 => format!("\"{}\"", self.pick(&STRINGS)),
            1 => self.pick(&NUMBERS).to_owned(),
            2 => self.pick(&["true", "false"]).to_owned(),
            3 => "null".to_owned(),
            4 | 5 => {
                let elements: Vec<String> = (0..self.below(4)).map(|_| self.value(depth - 1)).collect();
                format!("[{}]", elements.join(","))
            }
            _ => {
                let members: Vec<String> = (0..self.below(5)).map(|_| self.member(depth - 1)).collect();
                format!("{{{}}}", members.join(","))
            }
        };
        format!("{}{text}{}", self.space(), self.space())
    }

    fn member(&mut self, depth: usize) -> String {
        let key = self.pick(&KEYS);
        let space = self.space();
        format!("{space}\"{key}\"{space}:{}", self.value(depth))
    }

    /// Leaves about half of the texts unchanged; otherwise replaces, removes, truncates, doubles or inserts something.
    pub fn mutate(&mut self, text: &mut Vec<u8>) {
        for _ in 0..self.below(4).saturating_sub(1) {
            let at = self.below(text.len() + 1);
            match self.below(5) {
                0 if at < text.len() => drop(text.remove(at)),
                1 if at < text.len() => text.splice(at..=at, [self.below(256) as u8]).for_each(drop),
                2 if at < text.len() => text.truncate(at),
                3 if at < text.len() => text.extend_from_within(at..=at),
                _ => {
                    let piece = self.pick(&PIECES);
                    text.splice(at..at, piece.bytes()).for_each(drop);
                }
            }
        }
    }
}
