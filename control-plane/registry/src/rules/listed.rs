//! Resources that a plugin lists itself.
//!
//! Refuses primitives without a plugin that could list them.

use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::{Mode, Spec};

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    let is_plugin = spec.runtime.as_ref().is_some_and(|runtime| runtime.mode == Mode::Plugin);
    if spec.schema.listed.is_some() && !is_plugin {
        let message = "no plugin runs this, so nothing lists the resources";
        let hint = "let a plugin run it (`runtime.mode: plugin`), or write a resource for each";
        findings.add(FaultCode::BadValue, "/primitiveSchema/listed", message, hint);
    }
}
