//! Search of the audit log of calls: by time, or in the order of arrival.
//!
//! Owns the conditions and their statements, which SQLite and PostgreSQL share. Keeps true: a page reads at most
//! [`EXAMINED`] events, and the position that it returns neither skips nor repeats an event. Members are found in the text
//! of an event: in JSON without white space, `"name":"` begins nothing but the member of that name, because a quotation
//! mark within a text follows a backslash (RFC 8259 section 7).

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use super::StoredEvent;

/// Maximum number of events that one page reads.
pub const EXAMINED: u32 = 50_000;

/// EventPosition of an event in the order of time: of events of one time, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventPosition {
    /// Unix milliseconds.
    pub at_ms: i64,
    pub seq: i64,
}

impl EventPosition {
    /// Returns the position of an event.
    pub fn of(stored: &StoredEvent) -> EventPosition {
        EventPosition { at_ms: stored.event.at_ms, seq: stored.seq }
    }
}

impl fmt::Display for EventPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at_ms, self.seq)
    }
}

/// Error: a text is no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor of this list")]
pub struct EventPositionError;

impl FromStr for EventPosition {
    type Err = EventPositionError;

    fn from_str(text: &str) -> Result<EventPosition, EventPositionError> {
        let (at, seq) = text.split_once('.').ok_or(EventPositionError)?;
        let number = |text: &str| text.parse::<i64>().map_err(|_| EventPositionError);
        let position = EventPosition { at_ms: number(at)?, seq: number(seq)? };
        // One spelling of each position.
        if position.to_string() == text { Ok(position) } else { Err(EventPositionError) }
    }
}

/// SearchOrder of the events of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchOrder {
    /// Order of time, newest first.
    #[default]
    Newest,
    /// Order of time, oldest first.
    Oldest,
    /// Order of numbers, lowest first: events arrive in this order, and none arrives before one that was read.
    Arrival,
}

/// A member that an event must have with one of these texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberFilter {
    /// Parts of the events' texts, of which one is enough.
    fragments: Vec<String>,
}

impl MemberFilter {
    /// Returns the filter for a member with this text.
    pub fn is(name: &str, text: &str) -> MemberFilter {
        MemberFilter { fragments: vec![format!("{}{}", beginning(name), quoted_end(text))] }
    }

    /// Returns the filter for a member whose text starts with this one.
    pub fn starts(name: &str, text: &str) -> MemberFilter {
        let quoted = quoted_end(text);
        let open = quoted.strip_suffix('"').unwrap_or(&quoted);
        MemberFilter { fragments: vec![format!("{}{open}", beginning(name))] }
    }

    /// Returns the filter for events that pass this one or the other one.
    pub fn or(mut self, other: MemberFilter) -> MemberFilter {
        self.fragments.extend(other.fragments);
        self
    }

    /// Whether the text of an event passes.
    pub fn passes(&self, event: &str) -> bool {
        self.fragments.iter().any(|fragment| event.contains(fragment))
    }
}

fn beginning(name: &str) -> String {
    format!("\"{name}\":\"")
}

/// Returns the text as JSON without its first quotation mark.
fn quoted_end(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.strip_prefix('"').unwrap_or_default().to_owned()
}

/// A search for events.
#[derive(Clone, Debug, Default)]
pub struct AuditSearch {
    /// Only events of this org.
    pub org: Option<String>,
    /// Only events with this trace id, which is found without reading others.
    pub trace: Option<String>,
    /// Only events at or after this time, in Unix milliseconds.
    pub from_ms: Option<i64>,
    /// Only events before this time, in Unix milliseconds.
    pub to_ms: Option<i64>,
    /// Filters that an event must all pass.
    pub members: Vec<MemberFilter>,
    pub order: SearchOrder,
    /// Only events after this position in the order.
    pub after: Option<EventPosition>,
    /// 1 to 1000; values outside are clamped.
    pub limit: u32,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    pub events: Vec<StoredEvent>,
    /// EventPosition to continue from; `None` if there are no more events.
    pub next: Option<EventPosition>,
}

impl AuditPage {
    /// Completes a page; `last_read` is the position at which the search stopped reading, if it did not reach the end.
    pub(crate) fn of(events: Vec<StoredEvent>, limit: u32, last_read: Option<EventPosition>) -> AuditPage {
        let is_full = u32::try_from(events.len()).is_ok_and(|count| count >= limit);
        let next = if is_full { events.last().map(EventPosition::of) } else { last_read };
        AuditPage { events, next }
    }
}

impl AuditSearch {
    /// Number of events in a page.
    pub(crate) fn page_limit(&self) -> u32 {
        self.limit.clamp(1, super::MAX_PAGE)
    }

    /// Whether an event passes every condition but the position.
    pub fn passes(&self, stored: &StoredEvent) -> bool {
        let event = &stored.event;
        self.org.as_ref().is_none_or(|org| *org == event.org)
            && self.from_ms.is_none_or(|from| event.at_ms >= from)
            && self.to_ms.is_none_or(|to| event.at_ms < to)
            && self.trace.as_ref().is_none_or(|trace| MemberFilter::is("trace", trace).passes(&event.event))
            && self.members.iter().all(|member| member.passes(&event.event))
    }

    /// The position that begins the order; events after it are read.
    fn start(&self) -> EventPosition {
        match self.order {
            SearchOrder::Newest => {
                let latest = EventPosition { at_ms: self.to_ms.unwrap_or(i64::MAX), seq: i64::MIN };
                self.after.map_or(latest, |after| after.min(latest))
            }
            SearchOrder::Oldest => {
                let at_ms = self.from_ms.map_or(i64::MIN, |from| from.saturating_sub(1));
                let earliest = EventPosition { at_ms, seq: i64::MAX };
                self.after.map_or(earliest, |after| after.max(earliest))
            }
            SearchOrder::Arrival => self.after.unwrap_or(EventPosition { at_ms: i64::MIN, seq: i64::MIN }),
        }
    }
}

/// A value of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SearchValue {
    Number(i64),
    Text(String),
}

/// Expressions that differ between the databases.
pub(crate) struct SearchDialect {
    /// Table or view of the events.
    pub(crate) table: &'static str,
    /// The trace id of an event, exactly as its index has it.
    pub(crate) trace: &'static str,
    /// Function of a text and a part: its position, 0 if the part is not there.
    pub(crate) find: &'static str,
    /// The org, in a form that no index has: a search by trace uses the index of traces.
    pub(crate) plain_org: &'static str,
}

/// A statement with its values, `$1` and following.
pub(crate) struct SearchStatement {
    pub(crate) text: String,
    pub(crate) parameters: Vec<SearchValue>,
}

impl SearchStatement {
    fn number(&mut self, value: i64) -> String {
        self.parameters.push(SearchValue::Number(value));
        format!("${}", self.parameters.len())
    }

    fn text(&mut self, value: &str) -> String {
        self.parameters.push(SearchValue::Text(value.to_owned()));
        format!("${}", self.parameters.len())
    }
}

/// Returns the statement for the position of the last event that a page reads; it has no row if that is the end.
pub(crate) fn last_read(
    search: &AuditSearch,
    dialect: &SearchDialect,
    horizon: Option<i64>,
) -> SearchStatement {
    let mut statement = SearchStatement { text: String::new(), parameters: Vec::new() };
    let conditions = conditions(&mut statement, search, dialect, horizon);
    statement.text = format!(
        "SELECT at_ms, seq FROM {} WHERE {conditions} ORDER BY {} LIMIT 1 OFFSET {}",
        dialect.table,
        order(search.order),
        EXAMINED - 1
    );
    statement
}

/// Returns the statement for a page, which reads no further than `last_read`.
pub(crate) fn page(
    search: &AuditSearch,
    dialect: &SearchDialect,
    horizon: Option<i64>,
    last_read: Option<EventPosition>,
) -> SearchStatement {
    let mut statement = SearchStatement { text: String::new(), parameters: Vec::new() };
    let mut conditions = conditions(&mut statement, search, dialect, horizon);
    if let Some(last) = last_read {
        let seq = statement.number(last.seq);
        conditions.push_str(&match search.order {
            SearchOrder::Newest => format!(" AND (at_ms, seq) >= ({}, {seq})", statement.number(last.at_ms)),
            SearchOrder::Oldest => format!(" AND (at_ms, seq) <= ({}, {seq})", statement.number(last.at_ms)),
            SearchOrder::Arrival => format!(" AND seq <= {seq}"),
        });
    }
    for member in &search.members {
        let each: Vec<String> = member
            .fragments
            .iter()
            .map(|fragment| format!("{}(event, {}) > 0", dialect.find, statement.text(fragment)))
            .collect();
        conditions.push_str(&format!(" AND ({})", each.join(" OR ")));
    }
    let limit = statement.number(i64::from(search.page_limit()));
    statement.text = format!(
        "SELECT seq, at_ms, org, event FROM {} WHERE {conditions} ORDER BY {} LIMIT {limit}",
        dialect.table,
        order(search.order)
    );
    statement
}

/// Returns the conditions that decide which events are read.
fn conditions(
    statement: &mut SearchStatement,
    search: &AuditSearch,
    dialect: &SearchDialect,
    horizon: Option<i64>,
) -> String {
    let start = search.start();
    let seq = statement.number(start.seq);
    let mut all = vec![match search.order {
        SearchOrder::Newest => format!("(at_ms, seq) < ({}, {seq})", statement.number(start.at_ms)),
        SearchOrder::Oldest => format!("(at_ms, seq) > ({}, {seq})", statement.number(start.at_ms)),
        SearchOrder::Arrival => format!("seq > {seq}"),
    }];
    if let Some(from) = search.from_ms.filter(|_| search.order != SearchOrder::Oldest) {
        all.push(format!("at_ms >= {}", statement.number(from)));
    }
    if let Some(to) = search.to_ms.filter(|_| search.order != SearchOrder::Newest) {
        all.push(format!("at_ms < {}", statement.number(to)));
    }
    if let Some(horizon) = horizon {
        all.push(format!("seq < {}", statement.number(horizon)));
    }
    if let Some(trace) = &search.trace {
        all.push(format!("{} = {}", dialect.trace, statement.text(trace)));
    }
    if let Some(org) = &search.org {
        let column = if search.trace.is_some() { dialect.plain_org } else { "org" };
        all.push(format!("{column} = {}", statement.text(org)));
    }
    all.join(" AND ")
}

fn order(order: SearchOrder) -> &'static str {
    match order {
        SearchOrder::Newest => "at_ms DESC, seq DESC",
        SearchOrder::Oldest => "at_ms, seq",
        SearchOrder::Arrival => "seq",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written_and_nothing_else_is() {
        for position in [
            EventPosition { at_ms: 1_700_000_000_000, seq: 7 },
            EventPosition { at_ms: 0, seq: -3 },
            EventPosition { at_ms: i64::MAX, seq: i64::MIN },
        ] {
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        let bad = ["", ".", "1", "1.", ".1", "1.2.3", "a.1", "+1.1", "01.1", "1.9223372036854775808", "1 .2"];
        for text in bad {
            assert_eq!(text.parse::<EventPosition>(), Err(EventPositionError), "{text}");
        }
    }

    #[test]
    fn a_member_is_not_found_in_the_text_of_another_one() {
        let event = serde_json::json!({ "request": "x\",\"user\":\"bob", "user": "al\"ice" }).to_string();
        assert!(!MemberFilter::is("user", "bob").passes(&event), "{event}");
        assert!(MemberFilter::is("user", "al\"ice").passes(&event));
        assert!(!MemberFilter::is("user", "al").passes(&event));
        assert!(MemberFilter::starts("user", "al").passes(&event));
        assert!(MemberFilter::is("user", "bob").or(MemberFilter::is("user", "al\"ice")).passes(&event));
    }

    #[test]
    fn the_start_of_a_search_is_the_narrower_of_its_time_and_its_position() {
        let at = |at_ms, seq| EventPosition { at_ms, seq };
        let search = AuditSearch { to_ms: Some(10), ..AuditSearch::default() };
        assert_eq!(search.start(), at(10, i64::MIN));
        assert_eq!(AuditSearch { after: Some(at(8, 1)), ..search.clone() }.start(), at(8, 1));
        assert_eq!(AuditSearch { after: Some(at(12, 1)), ..search }.start(), at(10, i64::MIN));
        let search = AuditSearch { from_ms: Some(10), order: SearchOrder::Oldest, ..AuditSearch::default() };
        assert_eq!(search.start(), at(9, i64::MAX));
        assert_eq!(AuditSearch { after: Some(at(12, 1)), ..search }.start(), at(12, 1));
    }
}
