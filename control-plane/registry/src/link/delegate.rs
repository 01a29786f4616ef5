//! Delegates that are answered by another primitive.
//!
//! Keeps true: the primitive is declared and callable, every server that needs the delegate lists it, and it never
//! delegates to that delegate again.

use std::collections::{HashMap, HashSet};

use super::{Declaration, Index};
use crate::compile::ServerMember;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::{Kind, Spec, bare_id, versioned};

/// Returns the primitive that answers for a delegate, as written in the spec.
pub(super) fn target(spec: &Spec) -> Option<&str> {
    match spec.kind {
        Kind::Delegate => spec.runtime.as_ref()?.primitive.as_deref(),
        _ => None,
    }
}

/// Checks that the primitive of a delegate is declared and callable, and does not lead back to it. `looping` are the
/// files of delegates that are part of a loop.
pub(crate) fn check_delegate(
    item: &Declaration<'_>,
    index: &Index<'_>,
    looping: &HashSet<&str>,
    findings: &mut Findings<'_>,
) {
    let Some(reference) = target(item.spec) else { return };
    let path = "/runtime/primitive";
    let problem = match index.resolve_listed(item.folder, reference) {
        None => format!("no file declares `{reference}`"),
        Some(found) if !found.spec.kind.is_tool() => {
            format!("`{}` is of type {}", found.spec.id, found.spec.kind.word())
        }
        Some(found) => {
            if looping.contains(item.file) {
                let message = format!("`{}` delegates to `{}` again", found.spec.id, item.spec.id);
                let hint = "break the loop: it would end at the limit of nested calls";
                findings.add(FaultCode::DelegateLoop, path, message, hint);
            }
            return;
        }
    };
    let hint = "name a tool or task of the folder, or write folder/id";
    findings.add(FaultCode::UnresolvedDependency, path, problem, hint);
}

/// Checks that a server lists the primitives that answer for its delegates, because they are called at that server.
pub(crate) fn check_listed(
    members: &[ServerMember<'_>],
    needed: &[ServerMember<'_>],
    findings: &mut Findings<'_>,
) {
    let mut listed: HashMap<&str, Vec<String>> = HashMap::new();
    for member in members {
        listed.entry(&member.spec.id).or_default().push(member.spec.major().to_string());
    }
    for delegate in needed {
        let Some(target) = target(delegate.spec) else { continue };
        let (reference, major) = versioned(target);
        let id = bare_id(reference);
        let answers = |majors: &Vec<String>| major.is_none_or(|major| majors.iter().any(|own| own == major));
        if !listed.get(id).is_some_and(answers) {
            let message = format!("`{}` answers for the delegate `{}`", id, delegate.spec.id);
            let hint = format!("list `{target}`; it need not be exposed");
            findings.add(FaultCode::UnresolvedRef, "/primitives", message, hint);
        }
    }
}
