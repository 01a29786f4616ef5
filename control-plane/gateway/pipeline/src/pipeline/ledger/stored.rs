//! Stored ends of calls in the ledger, and the answers for retries.
//!
//! Keeps true: a retry gets the answer of the first request, or, if that was too large to be kept, learns that the call
//! was completed; no ledger can read what it holds, and an answer opens under its own key only; an answer of a
//! read-only call that does not open counts as missing.

use asp_call::call::outcome::{Output, Refusal};
use asp_call::call::ownership::LedgerClaim;
use asp_call::seal::{Purpose, Sealer};
use asp_json::Json;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// First byte of a sealed answer; an answer of an earlier version is JSON.
const SEALED: u8 = 1;

/// The end of a call. Variants are only added: answers live for a day, and gateways of two versions share them.
#[derive(Serialize, Deserialize)]
pub(super) enum StoredEnd {
    Output(Output),
    OutcomeUnknown,
    InvalidArguments {
        pointer: String,
        message: String,
    },
    InvalidOutput {
        pointer: String,
        message: String,
    },
    Relayed {
        code: i64,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "asp_json::raw_option")]
        data: Option<Json>,
    },
    /// The call was completed, and its answer was too large.
    NotKept,
    /// The call only read, and its answer was too large.
    Unread,
}

impl StoredEnd {
    /// Returns the stored form of a refusal that is a call's end; `None` for one that leaves the end open.
    pub(super) fn of_refusal(refusal: &Refusal) -> Option<StoredEnd> {
        match refusal.clone() {
            Refusal::InvalidArguments { pointer, message } => {
                Some(StoredEnd::InvalidArguments { pointer, message })
            }
            Refusal::InvalidOutput { pointer, message } => {
                Some(StoredEnd::InvalidOutput { pointer, message })
            }
            Refusal::Relayed { code, message, data } => Some(StoredEnd::Relayed { code, message, data }),
            _ => None,
        }
    }

    pub(super) fn bytes(&self) -> Result<Bytes, Refusal> {
        serde_json::to_vec(self).map(Bytes::from).map_err(|e| Refusal::Internal(e.to_string()))
    }
}

/// Returns an answer as the ledger gets it.
pub(super) fn sealed(sealer: &Sealer, claim: &LedgerClaim, answer: &[u8]) -> Result<Bytes, Refusal> {
    let sealed = sealer.seal_bytes(Purpose::Answer, &context(claim), answer);
    let sealed = sealed.map_err(|e| Refusal::Internal(e.to_string()))?;
    Ok([&[SEALED], sealed.as_slice()].concat().into())
}

fn context(claim: &LedgerClaim) -> Vec<u8> {
    [claim.key, claim.hash].concat()
}

/// Returns the answer that was kept; `None` if the call may simply be executed again.
pub(super) fn replay(sealer: &Sealer, claim: &LedgerClaim, bytes: &[u8]) -> Result<Option<Output>, Refusal> {
    match bytes.split_first() {
        Some((&SEALED, sealed)) => match sealer.open_bytes(Purpose::Answer, &context(claim), sealed) {
            Some(answer) => read(&answer),
            None if !claim.mutating => Ok(None),
            None => {
                tracing::warn!(
                    "stored answer of a call cannot be opened, because it was sealed with another key or altered; the retry gets an unknown outcome: gateways that share a store need the same ASP_SEAL_KEY"
                );
                Err(Refusal::OutcomeUnknown)
            }
        },
        _ if !claim.mutating => Ok(None),
        _ => read(bytes),
    }
}

fn read(answer: &[u8]) -> Result<Option<Output>, Refusal> {
    // The answer exists; only a gateway of the version that stored it can read it.
    let newer =
        |_| Refusal::Upstream("the call's answer was stored by a newer version of asp: ask again".into());
    match serde_json::from_slice(answer).map_err(newer)? {
        StoredEnd::Output(output) => Ok(Some(output)),
        StoredEnd::OutcomeUnknown => Err(Refusal::OutcomeUnknown),
        StoredEnd::InvalidArguments { pointer, message } => {
            Err(Refusal::InvalidArguments { pointer, message })
        }
        StoredEnd::InvalidOutput { pointer, message } => Err(Refusal::InvalidOutput { pointer, message }),
        StoredEnd::Relayed { code, message, data } => Err(Refusal::Relayed { code, message, data }),
        StoredEnd::NotKept => Ok(Some(Output::too_large())),
        StoredEnd::Unread => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(key: u8) -> Sealer {
        Sealer::new(&[key; 32], None).unwrap()
    }

    fn claim(key: u8) -> LedgerClaim {
        LedgerClaim { key: [key; 32], hash: [2; 32], mutating: true }
    }

    #[test]
    fn the_data_of_an_error_is_kept_as_it_was_written() {
        let data = r#"{"n":340282366920938463463374607431768211455,"s":"\ud83d","a":1,"a":2}"#;
        let json = Json::parse(data.as_bytes()).unwrap();
        let relayed = Refusal::Relayed { code: -5, message: "no".into(), data: Some(json) };
        let plain = StoredEnd::of_refusal(&relayed).unwrap().bytes().unwrap();
        let kept = sealed(&sealer(1), &claim(1), &plain).unwrap();
        let read = replay(&sealer(1), &claim(1), &kept);
        let Err(Refusal::Relayed { data: Some(read), .. }) = read else { panic!("{read:?}") };
        assert_eq!(read.text(), data);
        let text = serde_json::to_string(&relayed).unwrap();
        let Refusal::Relayed { data: Some(read), .. } = serde_json::from_str(&text).unwrap() else {
            panic!("{text}")
        };
        assert_eq!(read.text(), data);
    }

    #[test]
    fn an_answer_opens_under_its_own_key_and_nowhere_else() {
        let output = Output::tool_error("text");
        let plain = StoredEnd::Output(output.clone()).bytes().unwrap();
        let kept = sealed(&sealer(1), &claim(1), &plain).unwrap();
        assert_eq!(replay(&sealer(1), &claim(1), &kept), Ok(Some(output.clone())));
        for (sealer, claim) in [(sealer(2), claim(1)), (sealer(1), claim(2))] {
            assert_eq!(replay(&sealer, &claim, &kept), Err(Refusal::OutcomeUnknown));
        }
        let mut altered = kept.to_vec();
        *altered.last_mut().unwrap() ^= 1;
        assert_eq!(replay(&sealer(1), &claim(1), &altered), Err(Refusal::OutcomeUnknown));
        assert_eq!(replay(&sealer(1), &claim(1), &plain), Ok(Some(output)), "of an earlier version");
    }

    /// The call was done: neither an internal error nor another execution.
    #[test]
    fn an_answer_of_a_newer_version_is_to_be_asked_for_again() {
        for newer in [r#"{"Deferred":{"until":7}}"#, r#""Archived""#] {
            let kept = sealed(&sealer(1), &claim(1), newer.as_bytes()).unwrap();
            let told = replay(&sealer(1), &claim(1), &kept);
            assert!(matches!(told, Err(Refusal::Upstream(_))), "{told:?}");
        }
    }

    #[test]
    fn what_only_reads_runs_again_where_its_answer_does_not_open() {
        let output = Output::tool_error("text");
        let plain = StoredEnd::Output(output.clone()).bytes().unwrap();
        let reads = LedgerClaim { mutating: false, ..claim(1) };
        let kept = sealed(&sealer(1), &reads, &plain).unwrap();
        assert_eq!(replay(&sealer(1), &reads, &kept), Ok(Some(output)));
        assert_eq!(replay(&sealer(2), &reads, &kept), Ok(None));
        assert_eq!(replay(&sealer(1), &reads, &plain), Ok(None), "nothing is taken that was not sealed");
    }
}
