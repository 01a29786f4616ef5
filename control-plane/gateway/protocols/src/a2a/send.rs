//! A message: it starts a task, joins the task that the same message started, or answers a task's question.
//!
//! Keeps true: the same message to the same skill from one principal is one task, at whichever gateway and however often
//! it is sent, and the same answer counts once; so is the same message that a router reads, which is looked up before it is
//! read, because it may be read differently each time; other content under the same id is another message; a message that was
//! rejected before its task started leaves its id free; the store records a running task before it is reported to its client
//! (I-3), also one that waits for arguments, and an answer before its task is reported (I-13); the end of a skill that only
//! reads is stored only if another gateway could be asked for it; an answer reaches the question that it names, or the one that
//! is shown; a message whose receiver is refused does nothing, and an answer that does not fit leaves no
//! receiver.

use std::sync::Arc;

use asp_a2a::{A2aError, A2aFailure, Generation, Message, SendRequest};
use asp_call::call::chosen::{self, ChosenId};
use asp_call::call::follower::CallSnapshot;
use asp_call::call::lineage;
use asp_call::call::outcome::Refusal;
use asp_call::call::question::CallerAnswer;
use asp_call::call::{Call, ClientAbilities, HeldMemory, IdempotencyKey, Invocation};
use asp_json::{Json, Members};
use asp_pipeline::pipeline::entitlement::{ServerView, check_scopes};
use asp_pipeline::pipeline::lookup::FoundCall;
use asp_pipeline::pipeline::promise::Keeper;
use asp_pipeline::pushes::FirstReceiver;
use asp_proto::snapshot::{Primitive, Protocol};
use asp_snapshot::ListedPrimitive;
use serde_json::Value;
use uuid::Uuid;

use super::found::{entry, find, is_shown, look_up};
use super::history::KnownMessage;
use super::message::{self, QUESTION, SkillRequest};
use super::push::NewReceiver;
use super::reading::{self, Reading};
use super::refused::{RefusedRequest, unknown_skill};
use super::{history, modes};
use crate::ProtocolRequest;
use crate::message_turns::MessageTurn;

/// Maximum number of skills that a refusal names.
const MAX_NAMED: usize = 32;
const UNASKED: &str = "the task does not wait for this message";

/// The task of a message.
pub(super) struct SentTask {
    pub(super) found: FoundCall,
    /// Whether this message started it.
    pub(super) is_new: bool,
}

/// Takes a message. `waits`: its client gets no response before the task ends or asks something.
pub(super) async fn take(
    request: &ProtocolRequest,
    generation: Generation,
    send: &SendRequest,
    waits: bool,
) -> Result<SentTask, RefusedRequest> {
    for id in &send.message.reference_task_ids {
        find(request, id).await?;
    }
    match &send.message.task_id {
        Some(task) => answer(request, generation, task, send).await,
        None => start(request, generation, send, waits).await,
    }
}

/// Returns the receiver of a message to a task of a primitive. The message sent again replaces it.
fn receiver(
    request: &ProtocolRequest,
    generation: Generation,
    send: &SendRequest,
    (entry, task): (&ListedPrimitive, Uuid),
) -> Result<Option<Arc<NewReceiver>>, RefusedRequest> {
    let Some(config) = &send.configuration.push else { return Ok(None) };
    NewReceiver::of(request, generation, (entry, config), task).map(Arc::new).map(Some)
}

/// Returns the receiver of a message to a task that exists.
fn receiver_for(
    request: &ProtocolRequest,
    generation: Generation,
    send: &SendRequest,
    found: &FoundCall,
) -> Result<Option<Arc<NewReceiver>>, RefusedRequest> {
    match entry(request, found) {
        Some(entry) => receiver(request, generation, send, (entry, found.id())),
        None => Ok(None),
    }
}

/// Content of a message that starts a task.
struct NewTask {
    entry: Arc<ListedPrimitive>,
    /// Whether a router may have chosen the primitive.
    is_routed: bool,
    /// Arguments of the message; the call asks for those that are missing.
    arguments: Json,
    chosen: ChosenId,
    /// Context that the client names.
    context: Option<String>,
    message_id: String,
    /// The message, as the call keeps it.
    opening: Json,
    /// Memory of the request and of the arguments.
    memory: Option<HeldMemory>,
    /// `_meta` of the call: the agents that it came through.
    meta: Members,
    receiver: Option<Arc<NewReceiver>>,
}

impl NewTask {
    /// Returns the primitive that the message is for; `None` if the same message may be for another one later.
    fn named(&self) -> Option<&Primitive> {
        (!self.is_routed).then_some(&self.entry.primitive)
    }
}

async fn start(
    request: &ProtocolRequest,
    generation: Generation,
    send: &SendRequest,
    waits: bool,
) -> Result<SentTask, RefusedRequest> {
    // Once again if another message under the same id started its task in between.
    for _ in 0..2 {
        if let Some(task) = start_or_join(request, generation, send, waits).await? {
            return Ok(task);
        }
    }
    Err(conflict())
}

/// Returns the task of a message; `None` if another message under the same id started its task in between.
async fn start_or_join(
    request: &ProtocolRequest,
    generation: Generation,
    send: &SendRequest,
    waits: bool,
) -> Result<Option<SentTask>, RefusedRequest> {
    let memory = hold_texts(request, send)?;
    let SkillRequest { skill: name, input } = SkillRequest::read(send)?;
    let sent = input.to_json();
    // A receiver of its states is stored with the call.
    let waits = waits && send.configuration.push.is_none();
    let is_routed = name.is_none() && reading::has_router(request);
    let turn = reading::enter_turn(request, send).await;
    let mut reading = Reading::of(request, send);
    let mut unread = None;
    if is_routed {
        match find_started(request, (generation, send), (None, &sent), waits).await? {
            TaskLookup::Started(task) => return Ok(Some(task)),
            TaskLookup::Absent(chosen) => {
                reading.task = chosen.id();
                unread = Some(chosen);
            }
        }
    }
    let entry = skill(request, name.as_deref(), (&mut reading, &sent)).await?;
    let primitive = &entry.primitive;
    modes::check_parts(&entry.media_types, &send.message.parts)?;
    modes::check_accepted(&entry.media_types, &send.configuration.accepted_output_modes)?;
    let chosen = match unread {
        Some(unread) => unread.for_version(&primitive.version),
        None => {
            match find_started(request, (generation, send), (Some(entry.as_ref()), &sent), waits).await? {
                TaskLookup::Started(task) => return Ok(Some(task)),
                TaskLookup::Absent(chosen) => chosen,
            }
        }
    };
    let receiver = receiver(request, generation, send, (&entry, chosen.id()))?;
    reading.task = chosen.id();
    let found = reading.arguments(&entry, &input).await;
    let arguments = match found {
        Some(found) => found,
        None => message::arguments(&primitive.input_schema, &primitive.a2a_text_argument, input)?,
    };
    let opening = reading.noted(history::storable(&send.message));
    let context = send.message.context_id.clone();
    let message_id = send.message.message_id.clone();
    let meta = lineage::passed(send.metadata.as_ref());
    let asked =
        NewTask { entry, is_routed, arguments, chosen, context, message_id, opening, memory, meta, receiver };
    begin(request, (generation, send), &asked, (&reading, turn, waits)).await
}

/// Result of looking for the task of a message.
enum TaskLookup {
    /// The same message has started it.
    Started(SentTask),
    /// No message has started it, which is to have this identity.
    Absent(ChosenId),
}

/// Looks for the task that the same message has started. `entry` is the skill that the message is for; `None` if a router
/// chooses it.
async fn find_started(
    request: &ProtocolRequest,
    (generation, send): (Generation, &SendRequest),
    (entry, sent): (Option<&ListedPrimitive>, &Json),
    waits: bool,
) -> Result<TaskLookup, RefusedRequest> {
    let whose = (&*request.caller, request.server.message.name.as_str());
    let primitive = entry.map(|entry| &entry.primitive);
    for by_content in [false, true] {
        let chosen = identity(request, send, (entry, sent), by_content);
        let known = match primitive {
            Some(primitive) => {
                let known = request.gateway.pipeline.find_sent(chosen.id(), whose, primitive, waits).await;
                known.map_err(RefusedRequest::of_store)?
            }
            None => look_up(request, chosen.id()).await?,
        };
        let Some(known) = known else { return Ok(TaskLookup::Absent(chosen)) };
        if let Some(task) = joined(request, (generation, send), (&chosen, primitive), known).await? {
            return Ok(TaskLookup::Started(task));
        }
    }
    Err(conflict())
}

/// Starts the task of a message, unless the same message has started it in between; `None` if another one under its id has.
async fn begin(
    request: &ProtocolRequest,
    (generation, send): (Generation, &SendRequest),
    asked: &NewTask,
    (reading, turn, waits): (&Reading<'_>, Option<MessageTurn>, bool),
) -> Result<Option<SentTask>, RefusedRequest> {
    let pipeline = &request.gateway.pipeline;
    let receiver = asked.receiver.clone().map(|receiver| -> Arc<dyn FirstReceiver> { receiver });
    let begun = pipeline.begin_once_with(request.snapshot.clone(), invocation(request, asked), receiver);
    let begun = begun.map_err(|refusal| {
        let refused = match refusal {
            Refusal::MissingScopes { required } => RefusedRequest::step_up(request, &required),
            refusal => RefusedRequest::of(&refusal),
        };
        refused.of_call()
    })?;
    // The same message finds the task from now on.
    drop(turn);
    let identity = (&asked.chosen, asked.named());
    if !begun.is_new {
        return joined(request, (generation, send), identity, FoundCall::Here(begun.call)).await;
    }
    reading.charge(&begun.call);
    let promised = pipeline.promise_message(&begun.call, waits).await;
    let promised = promised.map_err(|fault| {
        let refused = asked.receiver.as_ref().and_then(|receiver| receiver.refused());
        refused.map_or_else(|| RefusedRequest::of_promise_fault(fault), RefusedRequest::of_call)
    });
    match promised? {
        Keeper::ThisGateway => Ok(Some(SentTask { found: FoundCall::Here(begun.call), is_new: true })),
        Keeper::AnotherGateway => {
            let known = look_up(request, asked.chosen.id()).await?;
            let known = known.ok_or_else(RefusedRequest::runs_remotely)?;
            joined(request, (generation, send), identity, known).await
        }
    }
}

/// Reserves the memory of arguments in the texts of a message; returns it with that of the request.
fn hold_texts(request: &ProtocolRequest, send: &SendRequest) -> Result<Option<HeldMemory>, RefusedRequest> {
    let held = request.hold_more(message::estimate_of_texts(&send.message.parts));
    held.map_err(|fault| RefusedRequest::of_memory_fault(&fault))
}

/// Returns the identity of the task of a message: that of the message's id, or `by_content`, for a message whose id another one
/// has. Without a skill, which a router chooses then, the same message is the same task whatever the router chooses. The name has
/// slashes, which no name over REST has.
fn identity(
    request: &ProtocolRequest,
    send: &SendRequest,
    (entry, sent): (Option<&ListedPrimitive>, &Json),
    by_content: bool,
) -> ChosenId {
    let (skill, version) =
        entry.map_or(("", ""), |entry| (entry.listing.a2a_skill.as_str(), entry.primitive.version.as_str()));
    let name = format!("a2a/{skill}/{}", send.message.message_id);
    let named = (request.server.message.name.as_str(), name.as_str());
    let by_id = ChosenId::of(&request.caller, named, version, sent);
    if !by_content {
        return by_id;
    }
    let context = send.message.context_id.as_deref().unwrap_or_default();
    by_id.by_content(&request.caller, named, context)
}

/// Returns the skills with this name, or all, that the caller can see.
fn visible_skills<'r>(request: &'r ProtocolRequest, name: Option<&str>) -> Vec<&'r Arc<ListedPrimitive>> {
    let mut view = ServerView::of(&request.snapshot, &request.server, &request.caller, Protocol::A2a);
    let entries = request.server.entries.iter().filter(|entry| match name {
        Some(name) => entry.listing.a2a_skill == name,
        None => !entry.listing.a2a_skill.is_empty(),
    });
    let is_shown = |entry: &&Arc<ListedPrimitive>| {
        view.shows(entry) && request.gateway.pipeline.offers(&request.server, entry)
    };
    entries.filter(is_shown).collect()
}

/// Returns the skill with this name, or the only one that the caller can see, or the one that the router chooses.
async fn skill(
    request: &ProtocolRequest,
    name: Option<&str>,
    (reading, sent): (&mut Reading<'_>, &Json),
) -> Result<Arc<ListedPrimitive>, RefusedRequest> {
    let visible = visible_skills(request, name);
    let entry = match (visible.as_slice(), name) {
        ([], Some(_)) => return Err(RefusedRequest::of(&Refusal::Unknown)),
        ([], None) => return Err(unknown_skill().into()),
        ([entry], _) | ([entry, ..], Some(_)) => Arc::clone(entry),
        // There is no task that could ask: a call has its primitive from the start.
        (several, None) => {
            let chosen = reading.skill(sent, several).await;
            chosen.ok_or_else(|| unnamed_skill(several))?
        }
    };
    // It is visible; the pipeline evaluates the rest when the call starts.
    match check_scopes(&request.caller, &entry) {
        Err(Refusal::MissingScopes { required }) => Err(RefusedRequest::step_up(request, &required)),
        Ok(()) | Err(_) => Ok(entry),
    }
}

/// Returns the refusal of a message that names none of several skills, with their ids for people and as a JSON array.
fn unnamed_skill(several: &[&Arc<ListedPrimitive>]) -> A2aFailure {
    let skills: Vec<&str> =
        several.iter().take(MAX_NAMED).map(|entry| entry.listing.a2a_skill.as_str()).collect();
    let description = format!("must name one of this agent's skills: {}", skills.join(", "));
    A2aFailure::invalid_field("message.metadata.skill", description)
        .with("skills", Value::from(skills).to_string())
}

fn invocation(request: &ProtocolRequest, asked: &NewTask) -> Invocation {
    let id = asked.chosen.id().to_string();
    let server = request.server.message.name.as_str();
    // A context of its own, which a repeated message has as well.
    let own_context = || chosen::id(&request.caller, server, &format!("a2a context of {id}")).to_string();
    let mut invocation = request.invocation(Protocol::A2a, &asked.entry, asked.arguments.clone());
    invocation.request.chosen = Some(asked.chosen);
    invocation.request.context = asked.context.clone().unwrap_or_else(own_context);
    invocation.request.protocol_request_id = asked.message_id.clone();
    invocation.request.opening = Some(asked.opening.clone());
    invocation.request.meta = asked.meta.clone();
    Invocation {
        // One task is one call, for its backend as well.
        idempotency_key: Some(IdempotencyKey::Explicit(id)),
        abilities: ClientAbilities {
            elicitation: true,
            pages: true,
            tasks: true,
            late_arguments: true,
            ..ClientAbilities::default()
        },
        memory: asked.memory.clone(),
        ..invocation
    }
}

/// Returns the task if the same message has started it; `None` if one with other content has. `primitive` is the one that the
/// message is for; `None` if a router may have chosen it.
async fn joined(
    request: &ProtocolRequest,
    (generation, send): (Generation, &SendRequest),
    (chosen, primitive): (&ChosenId, Option<&Primitive>),
    known: FoundCall,
) -> Result<Option<SentTask>, RefusedRequest> {
    let put = known.put().filter(|put| put.protocol == Protocol::A2a).ok_or_else(conflict)?;
    let is_in_context = send.message.context_id.as_ref().is_none_or(|context| *context == put.context);
    if !put.chosen.asks_the_same(chosen) || !is_in_context {
        return Ok(None);
    }
    let is_theirs = match primitive {
        Some(primitive) => put.is_of(primitive),
        None => is_shown(request, &known)?,
    };
    if !is_theirs {
        return Err(conflict());
    }
    let receiver = receiver_for(request, generation, send, &known)?;
    if let FoundCall::Here(call) = &known {
        // If another gateway took the call over, its state there is reported.
        let promised = request.gateway.pipeline.promise_again(call, &request.caller).await;
        promised.map_err(RefusedRequest::of_promise_fault)?;
    }
    register(request, receiver.as_deref(), &known).await?;
    Ok(Some(SentTask { found: known, is_new: false }))
}

/// Stores the receiver of a message to a task that exists.
async fn register(
    request: &ProtocolRequest,
    receiver: Option<&NewReceiver>,
    found: &FoundCall,
) -> Result<(), RefusedRequest> {
    match receiver.zip(entry(request, found)) {
        Some((receiver, entry)) => receiver.register(request, (entry, found)).await,
        None => Ok(()),
    }
}

/// Returns the refusal of a message that was sent before, to what the skill was then.
fn conflict() -> RefusedRequest {
    let description = "was sent before to another version of the skill: choose another messageId";
    A2aFailure::invalid_field("message.messageId", description).into()
}

/// Whether the message has answered a question of the task before; then the answer is stored.
async fn is_repeated(
    request: &ProtocolRequest,
    call: &Call,
    message: &Message,
) -> Result<bool, RefusedRequest> {
    let history = CallSnapshot::of(call).history;
    match history::find_known(&history, message) {
        None => Ok(false),
        Some(KnownMessage::Same(question)) => {
            // A gateway continues a call with the answers that another one stored.
            if call.questions.has_answered(question) {
                request.gateway.pipeline.answer_stored(call, question).await;
            }
            Ok(true)
        }
        Some(KnownMessage::Dropped) => Ok(true),
    }
}

/// Passes on the answer to a task's question; an answer that was passed on before changes nothing.
async fn answer(
    request: &ProtocolRequest,
    generation: Generation,
    task: &str,
    send: &SendRequest,
) -> Result<SentTask, RefusedRequest> {
    let message = &send.message;
    let found = find(request, task).await?;
    let receiver = receiver_for(request, generation, send, &found)?;
    let context = found.put().map(|put| put.context).unwrap_or_default();
    if message.context_id.as_ref().is_some_and(|named| *named != context) {
        let description = "is not the context of the task";
        return Err(A2aFailure::invalid_field("message.contextId", description).into());
    }
    let Some(call) = found.call().cloned() else { return Err(RefusedRequest::runs_remotely()) };
    modes::check_accepted(&call.entry.media_types, &send.configuration.accepted_output_modes)?;
    if is_repeated(request, &call, message).await? {
        register(request, receiver.as_deref(), &found).await?;
        return Ok(SentTask { found, is_new: false });
    }
    if call.outcome().is_some() {
        return Err(waits_not(task, "the task has ended; send the message without its taskId"));
    }
    let question = match message::named(message.metadata.as_ref(), QUESTION)? {
        Some(id) => call.questions.find(&id),
        None => CallSnapshot::of(&call).questions.into_iter().next(),
    };
    let question = question.ok_or_else(|| waits_not(task, UNASKED))?;
    let _memory = hold_texts(request, send)?;
    let answer = message::answer(&question, message)?;
    let answer = CallerAnswer { answer, message: Some(history::storable(message)) };
    // Before its receiver is stored.
    if !call.questions.takes(&question.id, &answer.answer) {
        check_untaken(request, &call, &question.id, message).await?;
        register(request, receiver.as_deref(), &found).await?;
        return Ok(SentTask { found, is_new: false });
    }
    let pipeline = &request.gateway.pipeline;
    register(request, receiver.as_deref(), &found).await?;
    pipeline.renew_authority(&call, &request.caller);
    let answered = pipeline.answer(&call, &question.id, answer).await;
    match answered.map_err(RefusedRequest::of_input_fault)? {
        true => pipeline.answer_stored(&call, &question.id).await,
        // Another answer was faster. A receiver with the same id may be that one's, so it stays.
        false => check_untaken(request, &call, &question.id, message).await?,
    }
    Ok(SentTask { found, is_new: false })
}

/// Refuses a message that its question does not take, unless the same message has answered it.
async fn check_untaken(
    request: &ProtocolRequest,
    call: &Call,
    question: &str,
    message: &Message,
) -> Result<(), RefusedRequest> {
    if let Some(question) = call.questions.find(question) {
        return Err(message::misfit(&question).into());
    }
    match is_repeated(request, call, message).await? {
        true => Ok(()),
        false => Err(waits_not(message.task_id.as_deref().unwrap_or_default(), UNASKED)),
    }
}

/// Returns the refusal of a message for which its task does not wait.
fn waits_not(task: &str, why: &str) -> RefusedRequest {
    A2aFailure::new(A2aError::UnsupportedOperation, why).with("taskId", task).into()
}
