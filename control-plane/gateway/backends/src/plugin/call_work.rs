//! A call as the owner of a tunnel's work.

use asp_call::call::Call;
use asp_call::call::started::StartGuard;
use asp_runtime_client::tunnel::{WorkMark, WorkOwner};

/// The work of a call.
pub(super) struct CallWork<'a>(pub &'a Call);

/// The guard of one attempt to run a call, as its tunnel keeps it.
struct CallMark(StartGuard);

impl WorkOwner for CallWork<'_> {
    fn mark(&self) -> Box<dyn WorkMark> {
        Box::new(CallMark(StartGuard::of(self.0)))
    }
}

impl WorkMark for CallMark {
    fn mark_sent(&mut self) {
        self.0.mark_sent();
    }

    fn undelivered(&mut self) {
        self.0.undelivered();
    }
}
