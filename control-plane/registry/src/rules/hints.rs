//! Consistency of `mutation`, `annotations` and `capabilities`.

use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::{Kind, Mode, Mutation, Scheme, Spec};

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    check_hints(spec, findings);
    check_capabilities(spec, findings);
    if let Some(auth) = &spec.security.auth
        && auth.scheme == Scheme::None
        && !auth.scopes.is_empty()
    {
        let hint = "name a scheme that carries scopes, or remove them";
        findings.add(
            FaultCode::AuthConflict,
            "/security/auth/scopes",
            "callers without authentication have no scopes",
            hint,
        );
    }
    if spec.summary.as_deref().is_none_or(str::is_empty) && spec.kind.is_exposable() {
        let hint = "add `summary`: models choose by it";
        findings.add(FaultCode::NoSummary, "/summary", "the primitive has no summary", hint);
    }
    if spec.mutation.is_none() && spec.kind.is_tool() {
        let message = "`mutation` is missing, so calls count as destructive";
        let hint = "write mutation: read_only, idempotent, non_idempotent or destructive";
        findings.add(FaultCode::NoMutation, "/mutation", message, hint);
    }
}

fn check_hints(spec: &Spec, findings: &mut Findings<'_>) {
    let mutation = spec.changes();
    let hints = &spec.annotations;
    let derived = [
        ("readOnlyHint", hints.read_only_hint, mutation == Mutation::ReadOnly),
        ("destructiveHint", hints.destructive_hint, mutation == Mutation::Destructive),
        (
            "idempotentHint",
            hints.idempotent_hint,
            matches!(mutation, Mutation::ReadOnly | Mutation::Idempotent),
        ),
    ];
    for (key, written, derived) in derived {
        if written.is_some_and(|written| written != derived) {
            let message = format!("`{key}` contradicts mutation {}", mutation.word());
            let hint = format!("remove `{key}` or change `mutation`");
            findings.add(FaultCode::MutationConflict, &format!("/annotations/{key}"), message, hint);
        }
    }
    let retries =
        spec.runtime.as_ref().and_then(|runtime| runtime.http.as_ref()).map_or(0, |http| http.retries);
    if retries > 0 && !matches!(mutation, Mutation::ReadOnly | Mutation::Idempotent) {
        let message = format!("a call that is {} is never repeated", mutation.word());
        let hint = "remove `retries`, or state that the call is idempotent";
        findings.add(FaultCode::MutationConflict, "/runtime/http/retries", message, hint);
    }
}

fn check_capabilities(spec: &Spec, findings: &mut Findings<'_>) {
    let of_tasks = [
        ("taskRequired", spec.capabilities.task_required),
        ("taskAfterInput", spec.capabilities.task_after_input),
        ("pollStream", spec.capabilities.poll_stream),
    ];
    for (key, written) in of_tasks {
        if written && spec.kind != Kind::Task {
            let message = format!("`{key}` is for tasks, not for a {}", spec.kind.word());
            let hint = "correct `type`, or remove it";
            findings.add(FaultCode::MisplacedKey, &format!("/capabilities/{key}"), message, hint);
        }
    }
    if spec.capabilities.elicitation_required && spec.dependencies.elicitations.is_empty() {
        let message = "`elicitationRequired` does not fit: primitiveDependencies.elicitations lists none";
        let hint = "list the ids in primitiveDependencies.elicitations, or remove it";
        findings.add(FaultCode::CapabilityConflict, "/capabilities/elicitationRequired", message, hint);
    }
    // Another server or agent asks its own questions, which have no ids here.
    let asks_itself = spec.runtime.as_ref().is_some_and(|runtime| {
        let is_asking_proxy = runtime.mcp.is_some() || runtime.a2a.is_some();
        runtime.mode == Mode::McpStdio || (runtime.mode == Mode::Proxy && is_asking_proxy)
    });
    let dependencies = &spec.dependencies;
    let uses = [
        (
            "supportsElicitation",
            spec.capabilities.supports_elicitation,
            "elicitations",
            !dependencies.elicitations.is_empty(),
        ),
        (
            "supportsDelegation",
            spec.capabilities.supports_delegation,
            "delegations",
            !dependencies.delegations.is_empty(),
        ),
    ];
    for (capability, written, list, listed) in uses {
        let conflict = match written {
            Some(false) => listed,
            Some(true) => !listed && !asks_itself,
            None => false,
        };
        if conflict {
            let state = if listed { "lists some" } else { "lists none" };
            let message = format!("`{capability}` does not fit: primitiveDependencies.{list} {state}");
            let hint = format!("list the ids in primitiveDependencies.{list}, or correct `{capability}`");
            findings.add(
                FaultCode::CapabilityConflict,
                &format!("/capabilities/{capability}"),
                message,
                hint,
            );
        }
    }
    if spec.progress_policy.is_some() && !spec.capabilities.supports_progress {
        let message = "a heartbeat is a progress event, and `supportsProgress` is not true";
        let hint = "set capabilities.supportsProgress: true, or remove `progress_policy`";
        findings.add(FaultCode::CapabilityConflict, "/progress_policy", message, hint);
    }
}
