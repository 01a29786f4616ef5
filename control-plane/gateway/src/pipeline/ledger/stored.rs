//! What the ledger keeps of an ended call, and what a retry under its key is told.
//!
//! Keeps true: a retry is told what the call's own caller was told, or, where that was too large to be kept, that the
//! call was completed.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::call::outcome::{Output, Refusal};

/// The end of a call. Variants are only added: answers live for a day, and gateways of two versions share them.
#[derive(Serialize, Deserialize)]
pub(super) enum Stored {
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
    },
    /// It was completed, and its answer was too large.
    NotKept,
    /// It only read, and its answer was too large.
    Unread,
}

impl Stored {
    /// A refusal that says how the call ended; `None` for one after which that is open.
    pub(super) fn of_refusal(refusal: &Refusal) -> Option<Stored> {
        match refusal.clone() {
            Refusal::InvalidArguments { pointer, message } => {
                Some(Stored::InvalidArguments { pointer, message })
            }
            Refusal::InvalidOutput { pointer, message } => Some(Stored::InvalidOutput { pointer, message }),
            Refusal::Relayed { code, message } => Some(Stored::Relayed { code, message }),
            _ => None,
        }
    }

    pub(super) fn bytes(&self) -> Result<Bytes, Refusal> {
        serde_json::to_vec(self).map(Bytes::from).map_err(|e| Refusal::Internal(e.to_string()))
    }
}

/// The answer that was kept; `None` where the call may simply be executed again.
pub(super) fn replay(bytes: &[u8]) -> Result<Option<Output>, Refusal> {
    match serde_json::from_slice(bytes).map_err(|e| Refusal::Internal(format!("stored answer: {e}")))? {
        Stored::Output(output) => Ok(Some(output)),
        Stored::OutcomeUnknown => Err(Refusal::OutcomeUnknown),
        Stored::InvalidArguments { pointer, message } => Err(Refusal::InvalidArguments { pointer, message }),
        Stored::InvalidOutput { pointer, message } => Err(Refusal::InvalidOutput { pointer, message }),
        Stored::Relayed { code, message } => Err(Refusal::Relayed { code, message }),
        Stored::NotKept => Ok(Some(Output::not_kept())),
        Stored::Unread => Ok(None),
    }
}
