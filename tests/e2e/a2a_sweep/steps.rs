//! The steps of the sequence diagram of a task over A2A: client, gateway, language runtime, worker and webhook, with the cancel,
//! the lost stream and the webhook as its alternatives. Their numbers are those of the drawing.
//!
//! A step is a line of the journal that both taps write: `client >` and `client <` before Envoy, the others between gateway and
//! runtime. It comes after the step that causes it. One line may be several steps: what a worker sends, the runtime's frame
//! around it and the gateway's message are one frame here, and the messages between protocol and plugins within the gateway
//! (5 to 7, 10, 13, 17 and the others) pass no wire; their effect at the client does.
//!
//! The drawing has A2A 0.3; this is 1.0, which differs in names (`SendStreamingMessage` for `message/stream`, `SubscribeToTask`
//! for `tasks/resubscribe`, `GetExtendedAgentCard`, `CreateTaskPushNotificationConfig`, states like `TASK_STATE_WORKING`) and
//! here:
//! - 14: a stream begins with the task, which is `submitted`. A queued call is `working` in a phase of its admission.
//! - The platform asks for approval before a destructive call has a worker, and the sweep asks for the policy that it lacks.
//!   Neither is drawn.
//! - 15, 19: there is one ProxyPpp stream for all tunnels, and it is open already.
//! - 29, 47: percentages are events of their own after that of their phase. The scan begins at 30 and ends at 62.
//! - 30 to 33: the sweep sends its log with the table and the report, at its end.
//! - 37: the fields of a question are a JSON Schema, and its id is `questionId`.
//! - 42 to 43: the scan asks its delegates before the approval of what it found.
//! - 55: the last state has no `final` in 1.0; the whole task follows it.
//! - 72: a subscription begins with the task as it is.
//! - 75: the notification has the task in `task`, and each state is sent.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// Number of steps in the drawing.
const STEPS: u8 = 75;
/// Bytes of a line that a failure shows.
const SHOWN: usize = 240;

pub(super) struct Step {
    /// Numbers in the drawing; none for a line that is not drawn.
    numbers: &'static [u8],
    /// Step that comes before it; 0 for none.
    after: u8,
    /// Start of the line.
    line: &'static str,
    /// Parts of the line.
    has: &'static [&'static str],
}

const fn step(numbers: &'static [u8], after: u8, line: &'static str, has: &'static [&'static str]) -> Step {
    Step { numbers, after, line, has }
}

/// The stream of the task that is followed here has the id `sweep`.
const SWEEP: &str = r#""id":"sweep""#;

const HOSTED_ID: &str = r#""id":"hosted""#;

/// All steps from the card to the end.
pub(super) const WHOLE: &[Step] = &[
    step(&[1], 0, "client > GET /webex-compliance/.well-known/agent-card.json", &[]),
    step(
        &[2],
        1,
        "client < {",
        &[r#""protocolVersion":"1.0""#, r#""streaming":true"#, r#""pushNotifications":true"#],
    ),
    step(&[3], 2, "client > POST /webex-compliance/a2a", &[r#""id":"card""#, "GetExtendedAgentCard"]),
    step(&[4], 3, "client < {", &[r#""id":"card""#, "agent://webex/compliance/cdcsr"]),
    step(
        &[8],
        4,
        "client > POST /webex-compliance/a2a",
        &[
            SWEEP,
            "SendStreamingMessage",
            r#""acceptedOutputModes":["application/json"]"#,
            r#""historyLength":0"#,
        ],
    ),
    step(&[9], 8, "client < 200 text/event-stream", &[]),
    step(&[5, 6, 7, 10, 14], 9, "client < {", &[SWEEP, "TASK_STATE_SUBMITTED"]),
    step(&[], 14, "client < {", &[SWEEP, "TASK_STATE_INPUT_REQUIRED", r#""questionId":"asp.approve""#]),
    // The alternative with a queue.
    step(&[11, 12], 14, "allocate cdcsr QUEUED", &[]),
    step(&[13], 12, "client < {", &[SWEEP, "TASK_STATE_WORKING", r#""phase":"ADMISSION.QUEUED""#]),
    step(&[15, 16], 12, "event ALLOCATION_STARTED", &[]),
    step(&[17], 16, "client < {", &[SWEEP, "TASK_STATE_WORKING", r#""phase":"ADMISSION.STARTED""#]),
    // The alternative without one: the task before this one.
    step(&[18], 4, "allocate cdcsr ADMITTED", &[]),
    step(&[19, 20], 16, "event TUNNEL_READY", &[]),
    step(&[21, 22], 20, "> init", &[]),
    step(&[23], 22, "< init ok:true", &[]),
    step(
        &[24, 25],
        22,
        "> invoke",
        &[r#""primitive":"cdcsr""#, r#""version":"1.0.1""#, r#""tenantId":"acme""#],
    ),
    step(&[], 25, "< elicitation gather_missing_policy", &["legalHoldPolicyId"]),
    step(&[], 25, "> user_input gather_missing_policy", &[r#""legalHoldPolicyId":"LHP-42""#]),
    step(&[26, 27, 28], 25, "< status INDEXING", &[]),
    step(&[29], 28, "client < {", &[SWEEP, "TASK_STATE_WORKING", r#""phase":"INDEXING","progressPct":18}"#]),
    step(&[44, 45, 46], 28, "< status SCANNING", &[]),
    step(&[47], 46, "client < {", &[SWEEP, "TASK_STATE_WORKING", r#""phase":"SCANNING","progressPct":30}"#]),
    step(&[], 47, "client < {", &[SWEEP, "TASK_STATE_WORKING", r#""progressPct":62}"#]),
    step(&[43], 46, "< delegation llm_pii_classifier", &[]),
    step(&[], 43, "> delegation_result", &["national-id"]),
    step(&[34, 35, 36], 43, "< elicitation approve_remediation", &["approveRedaction"]),
    step(
        &[37],
        36,
        "client < {",
        &[
            SWEEP,
            "TASK_STATE_INPUT_REQUIRED",
            r#""questionId":"approve_remediation"#,
            r#""approveRedaction":{"#,
        ],
    ),
    step(
        &[38],
        37,
        "client > POST /webex-compliance/a2a",
        &[r#""id":"remediation""#, r#""method":"SendMessage""#, r#""approveRedaction":true"#],
    ),
    step(&[39], 38, "client < {", &[r#""id":"remediation""#, "TASK_STATE_WORKING"]),
    step(&[40, 41, 42], 38, "> user_input approve_remediation", &[r#""approveRedaction":true"#]),
    step(&[30, 31, 32], 42, "< artifact progress-log", &["/log"]),
    step(&[33], 32, "client < {", &[SWEEP, "artifactUpdate", r#""filename":"log""#]),
    step(&[48, 49, 50], 32, "< artifact csv", &["/findings.csv", "text/csv"]),
    step(
        &[51],
        50,
        "client < {",
        &[
            SWEEP,
            "artifactUpdate",
            r#""filename":"findings.csv""#,
            r#""mediaType":"text/csv""#,
            r#""lastChunk":true"#,
        ],
    ),
    step(&[], 50, "< artifact json", &["/report.json"]),
    step(&[], 51, "client < {", &[SWEEP, "artifactUpdate", r#""filename":"report.json""#]),
    step(&[52, 53, 54], 50, "< completed", &["totalItems", "flaggedItems", "reportUri"]),
    step(&[], 54, "client < {", &[SWEEP, "artifactUpdate", r#""artifactId":"result""#, "reportUri"]),
    step(&[55], 54, "client < {", &[SWEEP, "statusUpdate", "TASK_STATE_COMPLETED"]),
    step(&[56, 57], 54, "close", &["bytes_in", "bytes_out", "cpu_ms", "duration_ms", "rss_max"]),
];

/// The cancel of a task whose worker waits for an answer; its stream has the id `held`.
pub(super) const CANCELLED: &[Step] = &[
    step(&[58], 0, "client > POST /webex-compliance/a2a", &[r#""id":"cancel""#, r#""method":"CancelTask""#]),
    step(&[59, 60, 61], 58, "> cancel", &["user_cancel"]),
    step(&[62, 63], 61, "< cancel accepted:true", &[]),
    step(&[64, 65, 66], 61, "< failed CANCELLED", &[]),
    step(&[67], 58, "client < {", &[r#""id":"cancel""#, "TASK_STATE_CANCELED"]),
    step(&[68], 58, "client < {", &[r#""id":"held""#, "statusUpdate", "TASK_STATE_CANCELED"]),
    step(&[69], 66, "close", &[]),
];

/// The cancel of a task that waits for a worker; its stream has the id `early`. It is not drawn.
pub(super) const CANCELLED_EARLY: &[Step] = &[
    step(&[], 0, "client < {", &[r#""id":"early""#, r#""phase":"ADMISSION.QUEUED""#]),
    step(
        &[],
        0,
        "client > POST /webex-compliance/a2a",
        &[r#""id":"cancel-early""#, r#""method":"CancelTask""#],
    ),
    step(&[], 0, "cancel_allocation", &[]),
    step(&[], 0, "client < {", &[r#""id":"cancel-early""#, "TASK_STATE_CANCELED"]),
    step(&[], 0, "client < {", &[r#""id":"early""#, "statusUpdate", "TASK_STATE_CANCELED"]),
];

/// A stream that is lost, and the one in its place.
pub(super) const LOST: &[Step] = &[
    step(&[70], 0, "client < {", &[r#""id":"lost""#]),
    step(
        &[71],
        70,
        "client > POST /webex-compliance/a2a",
        &[r#""id":"again""#, r#""method":"SubscribeToTask""#],
    ),
    step(&[72], 71, "client < 200 text/event-stream", &[]),
    step(&[], 71, "client < {", &[r#""id":"again""#, "TASK_STATE_COMPLETED"]),
];

/// A webhook; its notifications are lines that begin with `webhook <`.
pub(super) const PUSHED: &[Step] = &[
    step(
        &[73],
        0,
        "client > POST /webex-compliance/a2a",
        &[r#""id":"hook""#, r#""method":"CreateTaskPushNotificationConfig""#, r#""token":"tok-aaa""#],
    ),
    step(&[74], 73, "client < {", &[r#""id":"hook""#, r#""token":"tok-aaa""#]),
    step(&[75], 74, "webhook < tok-aaa", &["TASK_STATE_COMPLETED"]),
];

/// The same task of a service that hosts its calls, numbered by itself; its stream has the id `hosted`. The service has no wire
/// with phases and files: its report is a part of the result.
pub(super) const HOSTED: &[Step] = &[
    step(&[1], 0, "client > POST /sweeper/a2a", &[HOSTED_ID, "SendStreamingMessage"]),
    step(&[2], 1, "client < {", &[HOSTED_ID, "TASK_STATE_SUBMITTED"]),
    step(&[3], 2, "client < {", &[HOSTED_ID, "TASK_STATE_INPUT_REQUIRED", r#""questionId":"asp.approve""#]),
    step(&[4], 3, "client < {", &[HOSTED_ID, "TASK_STATE_WORKING", r#"{"progressPct":18}"#]),
    step(
        &[5],
        4,
        "client < {",
        &[HOSTED_ID, "TASK_STATE_INPUT_REQUIRED", r#""questionId":"gather_missing_policy."#],
    ),
    step(&[6], 5, "client > POST /sweeper/a2a", &[r#""id":"policy""#, r#""method":"SendMessage""#]),
    step(&[7], 6, "client < {", &[HOSTED_ID, "TASK_STATE_WORKING", r#"{"progressPct":62}"#]),
    step(
        &[8],
        7,
        "client < {",
        &[HOSTED_ID, "TASK_STATE_INPUT_REQUIRED", r#""questionId":"approve_remediation."#],
    ),
    step(&[9], 8, "client > POST /sweeper/a2a", &[r#""id":"remediation""#, r#""method":"SendMessage""#]),
    step(
        &[10],
        9,
        "client < {",
        &[
            HOSTED_ID,
            "artifactUpdate",
            r#""filename":"report.json""#,
            r#""policy":"LHP-42""#,
            r#""redacted":true"#,
            "national-id",
        ],
    ),
    step(&[11], 10, "client < {", &[HOSTED_ID, "statusUpdate", "TASK_STATE_COMPLETED"]),
];

/// Checks that the tables have each step of the drawing once.
pub(super) fn check_numbers() -> Result<()> {
    let tables = [WHOLE, CANCELLED, CANCELLED_EARLY, LOST, PUSHED];
    let mut numbers: Vec<u8> =
        tables.iter().flat_map(|table| table.iter()).flat_map(|step| step.numbers).copied().collect();
    numbers.sort_unstable();
    ensure!(numbers.iter().copied().eq(1..=STEPS), "not every step, or one twice: {numbers:?}");
    Ok(())
}

/// Checks that each step passed after the one that it names.
pub(super) fn check(journal: &[String], steps: &[Step]) -> Result<()> {
    let mut passed = BTreeMap::new();
    for Step { numbers, after, line, has } in steps {
        let start = match after {
            0 => 0,
            after => passed.get(after).with_context(|| format!("step {after} stands below {numbers:?}"))? + 1,
        };
        let is_step =
            |passing: &String| passing.starts_with(line) && has.iter().all(|part| passing.contains(part));
        let at = journal.iter().skip(start).position(is_step).with_context(|| {
            let shown: Vec<String> = journal.iter().map(|line| line.chars().take(SHOWN).collect()).collect();
            format!("step {numbers:?}, `{line}` with {has:?}, is not after {after} in:\n{}", shown.join("\n"))
        })?;
        passed.extend(numbers.iter().map(|number| (*number, start + at)));
    }
    Ok(())
}
