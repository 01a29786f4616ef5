//! Values that a plugin offers for an argument while the user types.
//!
//! Refuses: more values than a client receives, so that a plugin cannot flood a list that is read while somebody
//! types. An unusable value is left out; the others are kept.

use asp_proto::plugin::Completion;

use asp_call::call::outcome::{Output, Refusal};

/// Maximum number of values in one answer (MCP `CompleteResult`).
const MAX_VALUES: usize = 100;
/// Maximum length of a value in bytes.
const MAX_VALUE: usize = 1024;

/// Converts the values into the call's output.
pub(super) fn read(said: Completion) -> Result<Output, Refusal> {
    let Completion { values, total, has_more } = said;
    let misfit =
        |what: String| Err(Refusal::Upstream(format!("the plugin's values cannot be offered: {what}")));
    if values.len() > MAX_VALUES {
        return misfit(format!("{} of them, at most {MAX_VALUES} are", values.len()));
    }
    let given = values.len();
    let values: Vec<String> =
        values.into_iter().filter(|value| (1..=MAX_VALUE).contains(&value.len())).collect();
    if values.len() < given {
        tracing::warn!(
            left_out = given - values.len(),
            "completion values were left out that are empty or too long"
        );
    }
    Ok(Output::completion(values, total, has_more))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(values: Vec<String>, total: Option<u32>) -> Result<Output, Refusal> {
        read(Completion { values, total, has_more: false })
    }

    #[test]
    fn values_within_their_bounds_are_offered_and_no_others() {
        let hundred = vec!["x".repeat(MAX_VALUE); MAX_VALUES];
        let offered = Output::Completion { values: hundred.clone(), total: Some(100), has_more: false };
        assert_eq!(said(hundred.clone(), Some(100)), Ok(offered));
        let uncounted = Output::Completion { values: hundred.clone(), total: None, has_more: false };
        assert_eq!(said(hundred, Some(99)), Ok(uncounted));
        let mixed = vec![String::new(), "a".to_owned(), "x".repeat(MAX_VALUE + 1), "b".to_owned()];
        let kept = Output::Completion { values: vec!["a".into(), "b".into()], total: None, has_more: false };
        assert_eq!(said(mixed, None), Ok(kept));
        assert!(matches!(said(vec!["x".to_owned(); 101], None), Err(Refusal::Upstream(_))));
    }
}
