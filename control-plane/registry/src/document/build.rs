//! Building of the document tree from the parser's events.
//!
//! Owns the limits and the rejected YAML features. Keeps true: a rejected feature does not stop the build (the value
//! becomes null and the rest is still checked); invalid syntax or an exceeded limit does.

use granit_parser::{Event, Options, Parser, ScalarStyle, Span};

use super::{MAX_DEPTH, MAX_NODES, MapEntry, Node, NodeContent, escape, scalar};
use crate::fault::{Fault, FaultCode, shortened};
use crate::source::Source;

/// Maximum number of syntax faults, so that a document full of rejected aliases cannot fill the memory with faults.
const MAX_SYNTAX_FAULTS: usize = 100;

/// Parses the text; `None` if it cannot be read to its end.
pub(super) fn build(source: &Source) -> (Option<Node>, Vec<Fault>) {
    let mut builder = Builder { source, faults: Vec::new(), nodes: 0, path: Vec::new() };
    (builder.root(), builder.faults)
}

/// Number of values that building reads, including discarded ones.
#[cfg(test)]
pub(super) fn nodes(source: &Source) -> usize {
    let mut builder = Builder { source, faults: Vec::new(), nodes: 0, path: Vec::new() };
    builder.root();
    builder.nodes
}

/// The build was stopped by a limit or a syntax error, whose fault is already listed.
struct BuildError;

struct Builder<'s> {
    source: &'s Source,
    faults: Vec<Fault>,
    nodes: usize,
    /// Current position of the build; formatted as a pointer only for a fault.
    path: Vec<PathStep>,
}

enum PathStep {
    Index(usize),
    Key(String),
}

type Events<'s> = Parser<'s, granit_parser::StrInput<'s>>;

impl<'s> Builder<'s> {
    fn root(&mut self) -> Option<Node> {
        if self.source.is_json()
            && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&self.source.text)
        {
            let line = u32::try_from(error.line()).unwrap_or(0);
            self.fault(FaultCode::Syntax, line, error.to_string(), "repair the JSON syntax");
            return None;
        }
        self.document()
    }

    fn document(&mut self) -> Option<Node> {
        let mut options = Options::default();
        options.disallow_directives = true;
        // Otherwise an alias before its anchor would be an error that hides all others.
        options.emit_unresolved_aliases = true;
        options.flow_nesting_limit = MAX_DEPTH;
        options.block_nesting_limit = MAX_DEPTH;
        // JSON keys have no length limit of their own; the file's size bounds them.
        options.simple_key_max_lookahead = 64 * 1024;
        let mut events = Parser::new_from_str_with_options(&self.source.text, options);
        let mut root = None;
        loop {
            let (event, span) = self.next(&mut events).ok()?;
            match event {
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                Event::StreamEnd => break,
                _ if root.is_some() => {
                    let hint = "keep one document a file";
                    self.fault(FaultCode::YamlFeature, line(&span), "a second document".into(), hint);
                    break;
                }
                event => root = Some(self.node(&mut events, event, &span, 0).ok()?),
            }
        }
        if root.is_none() && self.faults.is_empty() {
            self.fault(FaultCode::Syntax, 1, "the file is empty".into(), "write a mapping");
        }
        root
    }

    fn next(&mut self, events: &mut Events<'s>) -> Result<(Event<'s>, Span), BuildError> {
        match events.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => {
                let at = u32::try_from(error.marker().line()).unwrap_or(0);
                let text = error.info();
                // The parser's nesting limit is set to ours, so it is the same fault.
                if text.contains("nesting") || text.contains("recursion") {
                    self.too_deep(at);
                } else {
                    self.fault(FaultCode::Syntax, at, text, "repair the YAML syntax");
                }
                Err(BuildError)
            }
            None => {
                self.fault(FaultCode::Syntax, 0, "the text ends early".into(), "repair the YAML syntax");
                Err(BuildError)
            }
        }
    }

    fn node(
        &mut self,
        events: &mut Events<'s>,
        event: Event<'s>,
        span: &Span,
        depth: usize,
    ) -> Result<Node, BuildError> {
        let at = line(span);
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            let message = format!("more than {MAX_NODES} values");
            self.fault(FaultCode::DocumentBudget, at, message, "split the file");
            return Err(BuildError);
        }
        if depth > MAX_DEPTH {
            self.too_deep(at);
            return Err(BuildError);
        }
        let (anchor, tagged) = match &event {
            Event::Scalar(_, _, anchor, tag) => (*anchor, tag.is_some()),
            Event::SequenceStart(_, anchor, tag) | Event::MappingStart(_, anchor, tag) => {
                (*anchor, tag.is_some())
            }
            _ => (0, false),
        };
        if anchor != 0 {
            self.feature(at, "an anchor (&)");
        }
        if tagged {
            self.feature(at, "a tag (!)");
        }
        let content = match event {
            Event::Scalar(text, style, ..) => self.scalar(&text, style, at),
            Event::SequenceStart(..) => self.list(events, depth)?,
            Event::MappingStart(..) => self.map(events, depth)?,
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                self.feature(at, "an alias (*)");
                NodeContent::Null
            }
            _ => {
                self.fault(FaultCode::Syntax, at, "a value is missing".into(), "repair the YAML syntax");
                return Err(BuildError);
            }
        };
        Ok(Node { line: at, content })
    }

    fn list(&mut self, events: &mut Events<'s>, depth: usize) -> Result<NodeContent, BuildError> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next(events)?;
            if event == Event::SequenceEnd {
                return Ok(NodeContent::List(items));
            }
            self.path.push(PathStep::Index(items.len()));
            items.push(self.node(events, event, &span, depth + 1)?);
            self.path.pop();
        }
    }

    fn map(&mut self, events: &mut Events<'s>, depth: usize) -> Result<NodeContent, BuildError> {
        let mut entries: Vec<MapEntry> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        loop {
            let (event, span) = self.next(events)?;
            if event == Event::MappingEnd {
                return Ok(NodeContent::Map(entries));
            }
            let at = line(&span);
            let key = self.key(events, event, &span, depth)?;
            self.path.push(PathStep::Key(key.clone().unwrap_or_else(|| "?".into())));
            let duplicate = key.as_ref().is_some_and(|key| !seen.insert(key.clone()));
            if duplicate {
                let message = format!("the key `{}` occurs twice", key.as_deref().unwrap_or_default());
                self.fault(FaultCode::DuplicateKey, at, message, "keep one of the two");
            }
            let (event, span) = self.next(events)?;
            let node = self.node(events, event, &span, depth + 1)?;
            self.path.pop();
            if let Some(key) = key
                && !duplicate
            {
                entries.push(MapEntry { key, line: at, node });
            }
        }
    }

    /// Reads a key. Returns `None` after a fault for which the entry is left out.
    fn key(
        &mut self,
        events: &mut Events<'s>,
        event: Event<'s>,
        span: &Span,
        depth: usize,
    ) -> Result<Option<String>, BuildError> {
        let at = line(span);
        let plain_key = match &event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => Some(text.to_string()),
            _ => None,
        };
        if plain_key.as_deref() == Some("<<") {
            self.feature(at, "a merge key (<<)");
            return Ok(None);
        }
        let node = self.node(events, event, span, depth + 1)?;
        match (node.content, plain_key) {
            (NodeContent::Text(text), _) => Ok(Some(text)),
            // JSON accepts `1:` or `true:` as a property name, but YAML readers differ about it.
            (_, Some(text)) => {
                if !self.faults.iter().any(|fault| fault.line == at) {
                    let message = format!("the key `{text}` is not a text");
                    self.fault(FaultCode::AmbiguousScalar, at, message, "quote it");
                }
                Ok(None)
            }
            _ => {
                self.feature(at, "a key that is not a text");
                Ok(None)
            }
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, at: u32) -> NodeContent {
        if style != ScalarStyle::Plain {
            return NodeContent::Text(text.to_string());
        }
        scalar::plain(text).unwrap_or_else(|_| {
            let shown: String = text.chars().take(40).collect();
            let message = format!("`{shown}` is read differently by different programs");
            self.fault(FaultCode::AmbiguousScalar, at, message, "quote it, or write a plain decimal number");
            NodeContent::Null
        })
    }

    fn feature(&mut self, at: u32, what: &str) {
        self.fault(FaultCode::YamlFeature, at, format!("{what} is not allowed"), "write the value out");
    }

    fn too_deep(&mut self, at: u32) {
        let message = format!("nested deeper than {MAX_DEPTH} levels");
        self.fault(FaultCode::DocumentBudget, at, message, "flatten the value");
    }

    fn fault(&mut self, code: FaultCode, at: u32, message: String, hint: &str) {
        if self.faults.len() < MAX_SYNTAX_FAULTS {
            self.faults.push(Fault {
                code,
                file: self.source.path.clone(),
                line: at,
                // Invalid syntax has a line but no value to point to.
                path: if code == FaultCode::Syntax { String::new() } else { shortened(self.pointer()) },
                message: shortened(message),
                hint: hint.to_string(),
            });
        }
    }
}

impl Builder<'_> {
    fn pointer(&self) -> String {
        let mut pointer = String::new();
        for step in &self.path {
            pointer.push('/');
            match step {
                PathStep::Index(index) => pointer.push_str(&index.to_string()),
                PathStep::Key(key) => pointer.push_str(&escape(key)),
            }
        }
        pointer
    }
}

fn line(span: &Span) -> u32 {
    u32::try_from(span.start.line()).unwrap_or(0)
}
