//! Damaged files never stop the check: it answers with faults or a catalog.

use std::path::Path;

use asp_registry::{Source, check, conflicts, read_dir};

/// A small deterministic generator (xorshift), so that a failure can be repeated.
struct Generator(u64);

impl Generator {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (below.max(1) as u64)).unwrap_or(0)
    }
}

fn samples() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives");
    read_dir(&root).expect("primitives/ is readable")
}

fn damage(text: &str, generator: &mut Generator) -> String {
    const PIECES: [&str; 16] = [
        "{", "}", "[", "]", ": ", "- ", "\"", "'", "&a ", "*a", "!!str ", "<<: ", "\n", "#", "null",
        "\u{200b}",
    ];
    let mut characters: Vec<char> = text.chars().collect();
    for _ in 0..=generator.next(4) {
        let at = generator.next(characters.len());
        let end = (at + generator.next(12)).min(characters.len());
        let piece: Vec<char> = match generator.next(3) {
            0 => Vec::new(),
            1 => PIECES[generator.next(PIECES.len())].chars().collect(),
            _ => {
                let from = generator.next(characters.len());
                let to = (from + generator.next(40)).min(characters.len());
                characters[from..to].to_vec()
            }
        };
        characters.splice(at..end, piece);
    }
    characters.into_iter().collect()
}

#[test]
fn damaged_samples_are_judged_without_a_panic() {
    let samples = samples();
    let mut generator = Generator(0x5eed_1234_abcd_0001);
    let mut refused = 0;
    for _ in 0..1_500 {
        let source = &samples[generator.next(samples.len())];
        let damaged = Source { path: source.path.clone(), text: damage(&source.text, &mut generator) };
        let report = check(std::slice::from_ref(&damaged));
        assert_eq!(report.catalog.is_none(), !report.faults.is_empty());
        refused += usize::from(report.catalog.is_none());
    }
    assert!(refused > 500, "only {refused} of 1500 damaged files were refused");
}

#[test]
fn the_same_sources_compile_to_the_same_hashes() {
    let mut sources = samples();
    let hashes = |sources: &[Source]| -> Vec<String> {
        let servers = check(sources).catalog.expect("the samples have no fault").servers;
        servers.into_iter().map(|server| server.content_hash).collect()
    };
    let first = hashes(&sources);
    sources.reverse();
    assert_eq!(hashes(&sources), first, "the order of the files does not count");
    let echo = sources.iter_mut().find(|source| source.path == "demo/echo.yaml").expect("demo/echo.yaml");
    echo.text = echo.text.replace("Returns the message", "Gives back the message");
    let changed = hashes(&sources);
    assert_ne!(changed, first);
}

#[test]
fn an_id_has_one_content_of_a_version_whatever_its_owner_is_called() {
    let spec = |owner: &str, version: &str, summary: &str| {
        format!(
            "id: pay\nname: Pay\ntype: tool\nversion: {version}\nowner: {owner}\nsummary: {summary}\nmutation: destructive\n\
             primitiveSchema: {{input_schema: {{type: object}}}}\nruntime: {{mode: builtin, entrypoint: echo}}\n"
        )
    };
    let server = |name: &str, spec: String| {
        let file = format!(
            "apiVersion: asp/v1\nname: {name}\nprotocols: [mcp]\nauth: {{schemes: [jwt], issuers: [dev]}}\n\
             primitives: [{{ref: {name}/pay}}]\n"
        );
        let sources = [
            Source { path: format!("{name}/server.yaml"), text: file },
            Source { path: format!("{name}/pay.yaml"), text: spec },
        ];
        let report = check(&sources);
        assert_eq!(report.faults, []);
        report.catalog.expect("no fault").servers.remove(0)
    };
    let first = server("one", spec("team-a", "1.0.0", "Pays."));
    let clash = |other| conflicts(std::slice::from_ref(&first), &other, |_| true).len();
    assert_eq!(clash(server("two", spec("team-a", "1.0.0", "Pays."))), 0, "the same primitive");
    assert_eq!(clash(server("two", spec("team-a", "1.1.0", "Pays more."))), 0, "a new version of its owner");
    assert_eq!(clash(server("two", spec("team-a", "1.0.0", "Steals."))), 1, "other content");
    let other = server("two", spec("team-a", "1.0.0", "Steals."));
    for (may_see, named) in [(true, "the server `one` has `pay`"), (false, "another server has `pay`")] {
        let found = conflicts(std::slice::from_ref(&first), &other, |name| may_see && name == "one");
        assert!(found[0].message.starts_with(named), "{}", found[0].message);
    }
    assert_eq!(
        clash(server("two", spec("team-b", "2.0.0", "Pays."))),
        0,
        "what it says of its owner is shown alone"
    );
    assert_eq!(clash(server("one", spec("team-b", "1.0.0", "Steals."))), 0, "its own former version");
}
