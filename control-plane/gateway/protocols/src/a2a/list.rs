//! The caller's tasks at one agent, those whose state changed last first.
//!
//! Keeps true: the status of a task has the time by which the task is placed; an end is stored before it is listed (I-13); a
//! task that changes between two pages may be on neither, and none is on both; a page is bounded work and bytes, so a filter
//! that few tasks pass, or large artifacts, may leave it short and still have a next page; a page token is valid for one list
//! of one caller; `totalSize` counts the tasks up to the end of the page, and one more if there are others, because nobody
//! counts all records of a caller.

use asp_a2a::{A2aError, A2aFailure, PartContent, Task, TaskPage, TaskQuery, TaskState, Timestamp};
use asp_call::call::remote::{CallCursor, ListOrder, ListedCall};
use asp_call::seal::Purpose;
use asp_pipeline::pipeline::entitlement::ServerView;
use asp_proto::snapshot::Protocol;

use super::extensions::ActiveExtensions;
use super::found::report;
use super::refused::RefusedRequest;
use super::task::{self, TaskContents};
use crate::ProtocolRequest;

/// Size of a page without one.
const DEFAULT_PAGE: u32 = 50;
/// Number of records that one read returns.
const ROWS: u32 = 100;
/// Maximum number of reads for one page.
const MAX_READS: usize = 5;
/// Size of the artifacts and messages of a page, in bytes, from which it has no further task: as much as clients of gRPC accept.
const MAX_BYTES: usize = 4 << 20;

/// Place in a list.
struct PageToken {
    /// The last record that was examined.
    after: CallCursor,
    /// Number of tasks on the pages before.
    count: u32,
}

/// Returns a page of tasks.
pub(super) async fn list(
    request: &ProtocolRequest,
    query: &TaskQuery,
    extensions: ActiveExtensions,
) -> Result<TaskPage, RefusedRequest> {
    let contents = TaskContents {
        artifacts: query.include_artifacts,
        ..TaskContents::with_history(query.history_length.or(Some(0)), extensions)
    };
    let page_size = query.page_size.unwrap_or(DEFAULT_PAGE);
    let context = context(request, query);
    let token = query.page_token.as_deref().map(|token| open(request, &context, token)).transpose()?;
    let before = token.as_ref().map_or(0, |token| token.count);
    let wanted = usize::try_from(page_size).unwrap_or(usize::MAX);
    let mut tasks = Vec::new();
    let mut next = token.map(|token| token.after);
    let mut bytes = 0;
    let mut is_full = false;
    for _ in 0..MAX_READS {
        let server = &request.server.message.name;
        let page =
            request.gateway.pipeline.list(&request.caller, server, ListOrder::Updated, next, ROWS).await;
        let page = page.map_err(RefusedRequest::of_store)?;
        next = page.next;
        for (at, listed) in page.calls.iter().enumerate() {
            if query.status_timestamp_after.is_some_and(|after| listed.updated_ms < after.0) {
                next = None;
                break;
            }
            let task = filtered_task(request, query, listed, contents).await?;
            bytes += task.as_ref().map_or(0, size);
            tasks.extend(task);
            is_full = tasks.len() == wanted || bytes >= MAX_BYTES;
            if is_full {
                if at + 1 < page.calls.len() {
                    // The rest of what was read is on the next page.
                    next = Some(place(listed));
                }
                break;
            }
        }
        if is_full || next.is_none() {
            break;
        }
    }
    let count = before.saturating_add(u32::try_from(tasks.len()).unwrap_or(u32::MAX));
    let total_size = count.saturating_add(u32::from(next.is_some()));
    let next_page_token = match next {
        Some(after) => seal(request, &context, &PageToken { after, count })?,
        None => String::new(),
    };
    Ok(TaskPage { tasks, next_page_token, page_size, total_size })
}

/// Returns the task of a record; `None` if it does not pass the filter, or is not one that the caller can see.
async fn filtered_task(
    request: &ProtocolRequest,
    query: &TaskQuery,
    listed: &ListedCall,
    contents: TaskContents,
) -> Result<Option<Task>, RefusedRequest> {
    let is_of_context = query.context_id.as_ref().is_none_or(|context| *context == listed.put.context);
    if listed.put.protocol != Protocol::A2a || !is_of_context || !may_pass(query, listed) {
        return Ok(None);
    }
    if !is_visible(request, listed) {
        return Ok(None);
    }
    let server = &request.server.message.name;
    let found = request.gateway.pipeline.peek_task(listed.put.chosen.id(), &request.caller, server).await;
    let Some((found, _)) = found.map_err(RefusedRequest::of_store)? else { return Ok(None) };
    let mut task = report(request, &found, contents).await;
    task.status.timestamp = Some(Timestamp(listed.updated_ms));
    Ok(query.status.is_none_or(|status| status == task.status.state).then_some(task))
}

/// Returns the size of a task's artifacts and messages, in bytes.
fn size(task: &Task) -> usize {
    let of_artifacts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    let of_messages = task.history.iter().flat_map(|message| &message.parts);
    let parts = of_artifacts.chain(of_messages).map(|part| match &part.content {
        PartContent::Text(text) | PartContent::Url(text) => text.len(),
        PartContent::Raw(bytes) => bytes.as_str().len(),
        PartContent::Data(data) => data.text().len(),
    });
    let metadata = task.artifacts.iter().filter_map(|artifact| artifact.metadata.as_ref());
    parts.chain(metadata.map(|metadata| metadata.text().len())).sum()
}

/// Whether the caller can see the skill of a record.
fn is_visible(request: &ProtocolRequest, listed: &ListedCall) -> bool {
    let mut view = ServerView::of(&request.snapshot, &request.server, &request.caller, Protocol::A2a);
    let mut entries = request.server.entries.iter();
    entries.any(|entry| listed.put.is_of(&entry.primitive) && view.shows(entry))
}

/// Whether a task with this record may have the wanted state. A tool error is a completed call and a failed task; a
/// running call may have moved on since.
fn may_pass(query: &TaskQuery, listed: &ListedCall) -> bool {
    let state = task::state_of(listed.state);
    query.status.is_none_or(|wanted| match state {
        TaskState::Completed => matches!(wanted, TaskState::Completed | TaskState::Failed),
        state => state == wanted || !state.is_terminal(),
    })
}

/// Returns the place after a record.
fn place(listed: &ListedCall) -> CallCursor {
    (i64::try_from(listed.updated_ms).unwrap_or(i64::MAX), listed.put.chosen.id().into_bytes())
}

/// Returns what a page token belongs to.
fn context(request: &ProtocolRequest, query: &TaskQuery) -> Vec<u8> {
    let caller = &request.caller;
    let filter = format!("{:?} {:?}", query.status, query.status_timestamp_after.map(|after| after.0));
    let context = query.context_id.as_deref().unwrap_or_default();
    let server = &request.server.message.name;
    [
        "a2a tasks by change",
        server,
        &caller.issuer,
        &caller.org,
        &caller.user,
        &caller.client,
        &filter,
        context,
    ]
    .join("\u{0}")
    .into_bytes()
}

fn seal(request: &ProtocolRequest, context: &[u8], token: &PageToken) -> Result<String, RefusedRequest> {
    let (changed_ms, call) = token.after;
    let plain = [changed_ms.to_be_bytes().as_slice(), &call, &token.count.to_be_bytes()].concat();
    let sealed = request.gateway.sealer.seal(Purpose::Cursor, context, &plain);
    sealed.map_err(|_| A2aError::Internal.into())
}

fn open(request: &ProtocolRequest, context: &[u8], token: &str) -> Result<PageToken, RefusedRequest> {
    let opened = request.gateway.sealer.open(Purpose::Cursor, context, token);
    let token = opened.and_then(|plain| read(&plain));
    token.ok_or_else(|| A2aFailure::invalid_field("pageToken", "is not valid for this list").into())
}

fn read(plain: &[u8]) -> Option<PageToken> {
    let (changed_ms, rest) = plain.split_first_chunk()?;
    let (call, count) = rest.split_first_chunk()?;
    Some(PageToken {
        after: (i64::from_be_bytes(*changed_ms), *call),
        count: u32::from_be_bytes(count.try_into().ok()?),
    })
}
