//! Values that an upstream offers for an argument while the user types (MCP "Completion").
//!
//! Keeps true: only an upstream that declares completions is asked; others offer nothing; the values are bounded, and
//! invalid ones are left out.

use asp_call::call::outcome::Output;
use asp_call::execution::Execution;
use asp_proto::snapshot::{Kind, ProxyMcp};
use serde_json::{Map, Value, json};

pub(super) const METHOD: &str = "completion/complete";
/// Maximum number of values in one answer (MCP `CompleteResult`), and maximum length of a value in bytes.
const MAX_VALUES: usize = 100;
const MAX_VALUE: usize = 1024;

/// Builds the request for the values of `argument`; the known values of the others are sent along.
pub(super) fn request(target: &ProxyMcp, execution: &Execution, argument: &str) -> Map<String, Value> {
    let reference = match execution.call.entry.primitive.kind() {
        Kind::Prompt => json!({"type": "ref/prompt", "name": target.tool}),
        _ => json!({"type": "ref/resource", "uri": target.tool}),
    };
    let mut known = execution.arguments.as_object().cloned().unwrap_or_default();
    let typed = known.shift_remove(argument).unwrap_or_default();
    let mut params = Map::new();
    params.insert("ref".into(), reference);
    params.insert("argument".into(), json!({"name": argument, "value": typed}));
    if !known.is_empty() {
        params.insert("context".into(), json!({"arguments": known}));
    }
    params
}

/// Converts the answer into the call's output.
pub(super) fn output(result: &Map<String, Value>) -> Output {
    let Some(Value::Object(completion)) = result.get("completion") else {
        return Output::completion(Vec::new(), Some(0), false);
    };
    let mut completion = completion.clone();
    let all = match completion.remove("values") {
        Some(Value::Array(all)) => all,
        _ => Vec::new(),
    };
    let is_cut = all.len() > MAX_VALUES;
    let text =
        |value: Value| value.as_str().filter(|text| (1..=MAX_VALUE).contains(&text.len())).map(str::to_owned);
    let values: Vec<String> = all.into_iter().take(MAX_VALUES).filter_map(text).collect();
    let total = completion.get("total").and_then(Value::as_u64).and_then(|total| u32::try_from(total).ok());
    Output::completion(values, total, is_cut || completion.get("hasMore") == Some(&Value::Bool(true)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_within_their_bounds_are_offered_and_no_others() {
        let said = |completion: Value| output(&Map::from_iter([("completion".to_owned(), completion)]));
        let offered = |values: &[&str], total: Option<u32>, has_more: bool| Output::Completion {
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            total,
            has_more,
        };
        let mixed =
            json!({"values": ["a", "", 7, "x".repeat(MAX_VALUE + 1), "b"], "total": 9, "hasMore": true});
        assert_eq!(said(mixed), offered(&["a", "b"], Some(9), true));
        assert_eq!(said(json!({"values": ["a", "b"], "total": 1})), offered(&["a", "b"], None, false));
        assert_eq!(
            said(json!({"values": vec!["a"; MAX_VALUES + 1]})),
            offered(&["a"; MAX_VALUES], None, true)
        );
        assert_eq!(said(json!({})), offered(&[], None, false));
        assert_eq!(said(json!(7)), offered(&[], Some(0), false));
    }
}
