//! Details of a changed list in an audit row: each added and removed entry, bounded.

use std::fmt::Write;

use crate::control::{BindingRecord, ExposureRecord, LimitRecord, ListDifference, TOKEN_BUCKET};

/// Maximum size of the detail of an audit row, in bytes; entries that do not fit are counted.
const MAX_BYTES: usize = 4_000;

/// Returns the difference of two lists of limits.
pub(super) fn limits(before: &[LimitRecord], after: &[LimitRecord]) -> String {
    difference("limits", before, after, describe_limit)
}

/// Returns the difference of two lists, one entry per line: `- ` removed, `+ ` added.
pub(super) fn difference<T: PartialEq>(
    what: &str,
    before: &[T],
    after: &[T],
    describe: impl Fn(&T) -> String,
) -> String {
    let gone =
        before.iter().filter(|entry| !after.contains(entry)).map(|entry| format!("- {}", describe(entry)));
    let come =
        after.iter().filter(|entry| !before.contains(entry)).map(|entry| format!("+ {}", describe(entry)));
    let changed = lines(gone.chain(come));
    match changed.is_empty() {
        // Equal lists are not a change.
        true => format!("{} {what} in another order", after.len()),
        false => format!("{} {what}\n{changed}", after.len()),
    }
}

/// Returns the exceptions that a change removes and stores, one per line.
pub(super) fn exposure_replaced(change: &ListDifference<ExposureRecord>) -> String {
    replaced(change, |record| {
        let ExposureRecord { server, protocol, enabled, .. } = record;
        format!("{server} {protocol} enabled={enabled}")
    })
}

/// Returns the bindings that a change removes and stores, one per line.
pub(super) fn bindings_replaced(change: &ListDifference<BindingRecord>) -> String {
    replaced(change, binding)
}

fn replaced<T>(change: &ListDifference<T>, describe: impl Fn(&T) -> String) -> String {
    let gone = change.before.iter().map(|entry| format!("- {}", describe(entry)));
    let come = change.after.iter().map(|entry| format!("+ {}", describe(entry)));
    lines(gone.chain(come))
}

/// Describes a binding.
pub(super) fn binding(record: &BindingRecord) -> String {
    let BindingRecord { target_type, target, primitive, protocol, name, allowed, .. } = record;
    let target = match record.issuer.as_str() {
        "" => target.clone(),
        issuer => format!("{issuer}/{target}"),
    };
    let mut text = format!("{target_type}:{target} {primitive} {protocol} allowed={allowed}");
    if !name.is_empty() {
        text.push_str(&format!(" name={name}"));
    }
    for (is, word) in [(record.observed, " observed"), (record.approval, " approval")] {
        text.push_str(if is { word } else { "" });
    }
    if !record.approvers.is_empty() {
        text.push_str(&format!(" by={}", record.approvers));
    }
    if !record.approvers_issuer.is_empty() {
        text.push_str(&format!(" of={}", record.approvers_issuer));
    }
    if !record.when.is_empty() {
        text.push_str(&format!(" when={}", record.when));
    }
    text
}

/// Describes removed bindings.
pub(super) fn bindings_gone(gone: &[BindingRecord]) -> String {
    format!("{} bindings\n{}", gone.len(), lines(gone.iter().map(|record| format!("- {}", binding(record)))))
}

fn describe_limit(limit: &LimitRecord) -> String {
    let LimitRecord { server, primitive, user, wcit, issuer, machine, capacity, refill, observe, .. } = limit;
    let mut text = format!("server={server} primitive={primitive} user={user} wcit={wcit}");
    for (name, value) in [("issuer", issuer), ("machine", machine), ("group", &limit.group)] {
        if value != "*" {
            text.push_str(&format!(" {name}={value}"));
        }
    }
    let observed = if *observe { " observed" } else { "" };
    let rate = match (limit.kind.as_str(), limit.window_seconds) {
        (TOKEN_BUCKET, _) => format!("refill={refill}"),
        (kind, 0) => format!("type={kind}"),
        (kind, seconds) => format!("type={kind} window={seconds}s"),
    };
    format!("{text} capacity={capacity} {rate}{observed}")
}

fn lines(entries: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    let mut left_out = 0_usize;
    for entry in entries {
        if text.len() + entry.len() >= MAX_BYTES {
            left_out += 1;
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&entry);
    }
    if left_out > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, "\nand {left_out} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(primitive: &str, capacity: u64) -> LimitRecord {
        LimitRecord {
            server: "*".into(),
            primitive: primitive.into(),
            user: "*".into(),
            wcit: "*".into(),
            issuer: "*".into(),
            machine: "*".into(),
            capacity,
            refill: "1/s".into(),
            observe: false,
            ..LimitRecord::default()
        }
    }

    #[test]
    fn a_changed_list_of_limits_names_what_came_and_what_went() {
        let detail = limits(&[limit("a", 1), limit("b", 2)], &[limit("b", 2), limit("a", 5)]);
        assert_eq!(
            detail,
            "2 limits\n- server=* primitive=a user=* wcit=* capacity=1 refill=1/s\n\
             + server=* primitive=a user=* wcit=* capacity=5 refill=1/s"
        );
        assert!(limits(&[limit("a", 1)], &[]).starts_with("0 limits\n- server=* primitive=a"));
    }

    #[test]
    fn a_long_difference_is_cut_and_counted() {
        let many: Vec<LimitRecord> = (0..1_000).map(|n| limit(&format!("primitive-{n}"), 1)).collect();
        let detail = limits(&many, &[]);
        assert!(detail.len() < MAX_BYTES + 100, "{}", detail.len());
        let listed = detail.lines().filter(|line| line.starts_with("- ")).count();
        assert!(detail.ends_with(&format!("and {} more", 1_000 - listed)), "{detail:.200}");
    }
}
