import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Context(_message.Message):
    __slots__ = ("tenant_id", "user_id", "wcit_hash", "session_id", "correlation_id")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    WCIT_HASH_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    user_id: str
    wcit_hash: str
    session_id: str
    correlation_id: str
    def __init__(self, tenant_id: _Optional[str] = ..., user_id: _Optional[str] = ..., wcit_hash: _Optional[str] = ..., session_id: _Optional[str] = ..., correlation_id: _Optional[str] = ...) -> None: ...

class Json(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...

class InitRequest(_message.Message):
    __slots__ = ("ctx", "env", "secrets")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SecretsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CTX_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    ctx: Context
    env: _containers.ScalarMap[str, str]
    secrets: _containers.ScalarMap[str, str]
    def __init__(self, ctx: _Optional[_Union[Context, _Mapping]] = ..., env: _Optional[_Mapping[str, str]] = ..., secrets: _Optional[_Mapping[str, str]] = ...) -> None: ...

class InvokeRequest(_message.Message):
    __slots__ = ("ctx", "primitive", "version", "arguments", "request_id", "task_id", "attrs", "deadline", "budget", "access_token", "idempotency_key", "mcp_request_id", "resume", "describe")
    class AttrsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CTX_FIELD_NUMBER: _ClassVar[int]
    PRIMITIVE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ATTRS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    ACCESS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    MCP_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    ctx: Context
    primitive: str
    version: str
    arguments: Json
    request_id: str
    task_id: str
    attrs: _containers.ScalarMap[str, str]
    deadline: _timestamp_pb2.Timestamp
    budget: int
    access_token: str
    idempotency_key: str
    mcp_request_id: str
    resume: Resume
    describe: bool
    def __init__(self, ctx: _Optional[_Union[Context, _Mapping]] = ..., primitive: _Optional[str] = ..., version: _Optional[str] = ..., arguments: _Optional[_Union[Json, _Mapping]] = ..., request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., attrs: _Optional[_Mapping[str, str]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., budget: _Optional[int] = ..., access_token: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., mcp_request_id: _Optional[str] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., describe: _Optional[bool] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("capsule", "seq", "attempt", "user_inputs", "delegation_results", "resume_token")
    CAPSULE_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    USER_INPUTS_FIELD_NUMBER: _ClassVar[int]
    DELEGATION_RESULTS_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    capsule: bytes
    seq: int
    attempt: int
    user_inputs: _containers.RepeatedCompositeFieldContainer[DeliverUserInput]
    delegation_results: _containers.RepeatedCompositeFieldContainer[DeliverDelegationResult]
    resume_token: str
    def __init__(self, capsule: _Optional[bytes] = ..., seq: _Optional[int] = ..., attempt: _Optional[int] = ..., user_inputs: _Optional[_Iterable[_Union[DeliverUserInput, _Mapping]]] = ..., delegation_results: _Optional[_Iterable[_Union[DeliverDelegationResult, _Mapping]]] = ..., resume_token: _Optional[str] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("request_id", "reason", "mode")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HARD: _ClassVar[CancelRequest.Mode]
        SOFT: _ClassVar[CancelRequest.Mode]
        PREEMPT: _ClassVar[CancelRequest.Mode]
    HARD: CancelRequest.Mode
    SOFT: CancelRequest.Mode
    PREEMPT: CancelRequest.Mode
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    reason: str
    mode: CancelRequest.Mode
    def __init__(self, request_id: _Optional[str] = ..., reason: _Optional[str] = ..., mode: _Optional[_Union[CancelRequest.Mode, str]] = ...) -> None: ...

class DeliverUserInput(_message.Message):
    __slots__ = ("request_id", "task_id", "elicitation_id", "fields", "action", "error")
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACCEPT: _ClassVar[DeliverUserInput.Action]
        DECLINE: _ClassVar[DeliverUserInput.Action]
        CANCEL: _ClassVar[DeliverUserInput.Action]
    ACCEPT: DeliverUserInput.Action
    DECLINE: DeliverUserInput.Action
    CANCEL: DeliverUserInput.Action
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ELICITATION_ID_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    elicitation_id: str
    fields: Json
    action: DeliverUserInput.Action
    error: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., elicitation_id: _Optional[str] = ..., fields: _Optional[_Union[Json, _Mapping]] = ..., action: _Optional[_Union[DeliverUserInput.Action, str]] = ..., error: _Optional[str] = ...) -> None: ...

class DeliverDelegationResult(_message.Message):
    __slots__ = ("request_id", "task_id", "correlation_id", "result", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    correlation_id: str
    result: Json
    error: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., correlation_id: _Optional[str] = ..., result: _Optional[_Union[Json, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class DeliverMcpAnswer(_message.Message):
    __slots__ = ("request_id", "correlation_id", "result", "error_code", "error_message")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    correlation_id: str
    result: Json
    error_code: int
    error_message: str
    def __init__(self, request_id: _Optional[str] = ..., correlation_id: _Optional[str] = ..., result: _Optional[_Union[Json, _Mapping]] = ..., error_code: _Optional[int] = ..., error_message: _Optional[str] = ...) -> None: ...

class LineRequest(_message.Message):
    __slots__ = ("ctx", "request_id", "method", "params", "deadline", "attrs")
    class AttrsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CTX_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    ATTRS_FIELD_NUMBER: _ClassVar[int]
    ctx: Context
    request_id: str
    method: str
    params: Json
    deadline: _timestamp_pb2.Timestamp
    attrs: _containers.ScalarMap[str, str]
    def __init__(self, ctx: _Optional[_Union[Context, _Mapping]] = ..., request_id: _Optional[str] = ..., method: _Optional[str] = ..., params: _Optional[_Union[Json, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attrs: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeliverStorageAnswer(_message.Message):
    __slots__ = ("request_id", "correlation_id", "error", "value", "version", "keys", "has_more", "deleted")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    correlation_id: str
    error: str
    value: Json
    version: int
    keys: _containers.RepeatedScalarFieldContainer[str]
    has_more: bool
    deleted: bool
    def __init__(self, request_id: _Optional[str] = ..., correlation_id: _Optional[str] = ..., error: _Optional[str] = ..., value: _Optional[_Union[Json, _Mapping]] = ..., version: _Optional[int] = ..., keys: _Optional[_Iterable[str]] = ..., has_more: _Optional[bool] = ..., deleted: _Optional[bool] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: str
    def __init__(self, nonce: _Optional[str] = ...) -> None: ...

class CheckpointAck(_message.Message):
    __slots__ = ("request_id", "seq", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    seq: int
    error: str
    def __init__(self, request_id: _Optional[str] = ..., seq: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class InitResponse(_message.Message):
    __slots__ = ("ok", "message", "caps", "vitals")
    class CapsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    OK_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CAPS_FIELD_NUMBER: _ClassVar[int]
    VITALS_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    message: str
    caps: _containers.ScalarMap[str, str]
    vitals: Vitals
    def __init__(self, ok: _Optional[bool] = ..., message: _Optional[str] = ..., caps: _Optional[_Mapping[str, str]] = ..., vitals: _Optional[_Union[Vitals, _Mapping]] = ...) -> None: ...

class Vitals(_message.Message):
    __slots__ = ("heap_used_bytes", "heap_limit_bytes", "gc_count", "gc_micros", "heap_blocks")
    HEAP_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    HEAP_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    GC_COUNT_FIELD_NUMBER: _ClassVar[int]
    GC_MICROS_FIELD_NUMBER: _ClassVar[int]
    HEAP_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    heap_used_bytes: int
    heap_limit_bytes: int
    gc_count: int
    gc_micros: int
    heap_blocks: int
    def __init__(self, heap_used_bytes: _Optional[int] = ..., heap_limit_bytes: _Optional[int] = ..., gc_count: _Optional[int] = ..., gc_micros: _Optional[int] = ..., heap_blocks: _Optional[int] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("request_id", "accepted", "message")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    accepted: bool
    message: str
    def __init__(self, request_id: _Optional[str] = ..., accepted: _Optional[bool] = ..., message: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("request_id", "task_id", "percent", "message", "at", "gauges", "amount", "total")
    class GaugesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    GAUGES_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    percent: float
    message: str
    at: _timestamp_pb2.Timestamp
    gauges: _containers.ScalarMap[str, float]
    amount: float
    total: float
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., percent: _Optional[float] = ..., message: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., gauges: _Optional[_Mapping[str, float]] = ..., amount: _Optional[float] = ..., total: _Optional[float] = ...) -> None: ...

class ResultChunk(_message.Message):
    __slots__ = ("request_id", "task_id", "is_error", "structured", "text")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    IS_ERROR_FIELD_NUMBER: _ClassVar[int]
    STRUCTURED_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    is_error: bool
    structured: Json
    text: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., is_error: _Optional[bool] = ..., structured: _Optional[_Union[Json, _Mapping]] = ..., text: _Optional[str] = ...) -> None: ...

class Completed(_message.Message):
    __slots__ = ("request_id", "task_id", "output", "content", "is_error", "meta")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    IS_ERROR_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    output: Json
    content: Json
    is_error: bool
    meta: Json
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., output: _Optional[_Union[Json, _Mapping]] = ..., content: _Optional[_Union[Json, _Mapping]] = ..., is_error: _Optional[bool] = ..., meta: _Optional[_Union[Json, _Mapping]] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("request_id", "task_id", "code", "message", "details", "yielded")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    YIELDED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    code: str
    message: str
    details: Json
    yielded: bool
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., code: _Optional[str] = ..., message: _Optional[str] = ..., details: _Optional[_Union[Json, _Mapping]] = ..., yielded: _Optional[bool] = ...) -> None: ...

class ArtifactEmitted(_message.Message):
    __slots__ = ("request_id", "task_id", "type", "uri", "content_type", "description", "size", "sha256")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    type: str
    uri: str
    content_type: str
    description: str
    size: int
    sha256: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., type: _Optional[str] = ..., uri: _Optional[str] = ..., content_type: _Optional[str] = ..., description: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class ArtifactData(_message.Message):
    __slots__ = ("request_id", "uri", "offset", "data")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    uri: str
    offset: int
    data: bytes
    def __init__(self, request_id: _Optional[str] = ..., uri: _Optional[str] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ResourceChanged(_message.Message):
    __slots__ = ("request_id", "uri")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    uri: str
    def __init__(self, request_id: _Optional[str] = ..., uri: _Optional[str] = ...) -> None: ...

class StatusUpdated(_message.Message):
    __slots__ = ("request_id", "task_id", "status", "phase", "metadata")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSPECIFIED: _ClassVar[StatusUpdated.Status]
        WORKING: _ClassVar[StatusUpdated.Status]
        INPUT_REQUIRED: _ClassVar[StatusUpdated.Status]
        CANCELLED: _ClassVar[StatusUpdated.Status]
    STATUS_UNSPECIFIED: StatusUpdated.Status
    WORKING: StatusUpdated.Status
    INPUT_REQUIRED: StatusUpdated.Status
    CANCELLED: StatusUpdated.Status
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    status: StatusUpdated.Status
    phase: str
    metadata: Json
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., status: _Optional[_Union[StatusUpdated.Status, str]] = ..., phase: _Optional[str] = ..., metadata: _Optional[_Union[Json, _Mapping]] = ...) -> None: ...

class ElicitationRequested(_message.Message):
    __slots__ = ("request_id", "task_id", "elicitation_id", "title", "fields", "requested_schema", "message", "url")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ELICITATION_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    elicitation_id: str
    title: str
    fields: _containers.RepeatedCompositeFieldContainer[ElicitationField]
    requested_schema: Json
    message: str
    url: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., elicitation_id: _Optional[str] = ..., title: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[ElicitationField, _Mapping]]] = ..., requested_schema: _Optional[_Union[Json, _Mapping]] = ..., message: _Optional[str] = ..., url: _Optional[str] = ...) -> None: ...

class ElicitationCompleted(_message.Message):
    __slots__ = ("request_id", "elicitation_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ELICITATION_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    elicitation_id: str
    def __init__(self, request_id: _Optional[str] = ..., elicitation_id: _Optional[str] = ...) -> None: ...

class LineAnswer(_message.Message):
    __slots__ = ("request_id", "result", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    result: Json
    error: Json
    def __init__(self, request_id: _Optional[str] = ..., result: _Optional[_Union[Json, _Mapping]] = ..., error: _Optional[_Union[Json, _Mapping]] = ...) -> None: ...

class LineNotification(_message.Message):
    __slots__ = ("request_id", "method", "params")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    method: str
    params: Json
    def __init__(self, request_id: _Optional[str] = ..., method: _Optional[str] = ..., params: _Optional[_Union[Json, _Mapping]] = ...) -> None: ...

class McpRequested(_message.Message):
    __slots__ = ("request_id", "correlation_id", "method", "params", "withdrawn")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    correlation_id: str
    method: str
    params: Json
    withdrawn: bool
    def __init__(self, request_id: _Optional[str] = ..., correlation_id: _Optional[str] = ..., method: _Optional[str] = ..., params: _Optional[_Union[Json, _Mapping]] = ..., withdrawn: _Optional[bool] = ...) -> None: ...

class McpListsChanged(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class ElicitationField(_message.Message):
    __slots__ = ("name", "type", "required", "label")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    required: bool
    label: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., required: _Optional[bool] = ..., label: _Optional[str] = ...) -> None: ...

class DelegationRequested(_message.Message):
    __slots__ = ("request_id", "task_id", "correlation_id", "delegate_id", "input", "timeout", "conversation")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    DELEGATE_ID_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    correlation_id: str
    delegate_id: str
    input: Json
    timeout: _duration_pb2.Duration
    conversation: Json
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., correlation_id: _Optional[str] = ..., delegate_id: _Optional[str] = ..., input: _Optional[_Union[Json, _Mapping]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., conversation: _Optional[_Union[Json, _Mapping]] = ...) -> None: ...

class StorageRequested(_message.Message):
    __slots__ = ("request_id", "correlation_id", "of_user", "get", "put", "list", "delete")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    OF_USER_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    PUT_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    correlation_id: str
    of_user: bool
    get: StorageGet
    put: StoragePut
    list: StorageList
    delete: StorageDelete
    def __init__(self, request_id: _Optional[str] = ..., correlation_id: _Optional[str] = ..., of_user: _Optional[bool] = ..., get: _Optional[_Union[StorageGet, _Mapping]] = ..., put: _Optional[_Union[StoragePut, _Mapping]] = ..., list: _Optional[_Union[StorageList, _Mapping]] = ..., delete: _Optional[_Union[StorageDelete, _Mapping]] = ...) -> None: ...

class StorageGet(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class StoragePut(_message.Message):
    __slots__ = ("key", "value", "ttl", "if_version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    IF_VERSION_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: Json
    ttl: _duration_pb2.Duration
    if_version: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Json, _Mapping]] = ..., ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., if_version: _Optional[int] = ...) -> None: ...

class StorageList(_message.Message):
    __slots__ = ("prefix", "after")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class StorageDelete(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class LogLine(_message.Message):
    __slots__ = ("request_id", "task_id", "level", "message", "at", "severity")
    class Level(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TRACE: _ClassVar[LogLine.Level]
        DEBUG: _ClassVar[LogLine.Level]
        INFO: _ClassVar[LogLine.Level]
        WARN: _ClassVar[LogLine.Level]
        ERROR: _ClassVar[LogLine.Level]
    TRACE: LogLine.Level
    DEBUG: LogLine.Level
    INFO: LogLine.Level
    WARN: LogLine.Level
    ERROR: LogLine.Level
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    task_id: str
    level: LogLine.Level
    message: str
    at: _timestamp_pb2.Timestamp
    severity: str
    def __init__(self, request_id: _Optional[str] = ..., task_id: _Optional[str] = ..., level: _Optional[_Union[LogLine.Level, str]] = ..., message: _Optional[str] = ..., at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., severity: _Optional[str] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: str
    def __init__(self, nonce: _Optional[str] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("request_id", "seq", "capsule")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    CAPSULE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    seq: int
    capsule: bytes
    def __init__(self, request_id: _Optional[str] = ..., seq: _Optional[int] = ..., capsule: _Optional[bytes] = ...) -> None: ...

class ClientMessage(_message.Message):
    __slots__ = ("init", "invoke", "cancel", "user_input", "delegation_result", "ping", "checkpoint_ack", "mcp_answer", "line_request", "storage_answer")
    INIT_FIELD_NUMBER: _ClassVar[int]
    INVOKE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    USER_INPUT_FIELD_NUMBER: _ClassVar[int]
    DELEGATION_RESULT_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ACK_FIELD_NUMBER: _ClassVar[int]
    MCP_ANSWER_FIELD_NUMBER: _ClassVar[int]
    LINE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    STORAGE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    init: InitRequest
    invoke: InvokeRequest
    cancel: CancelRequest
    user_input: DeliverUserInput
    delegation_result: DeliverDelegationResult
    ping: Ping
    checkpoint_ack: CheckpointAck
    mcp_answer: DeliverMcpAnswer
    line_request: LineRequest
    storage_answer: DeliverStorageAnswer
    def __init__(self, init: _Optional[_Union[InitRequest, _Mapping]] = ..., invoke: _Optional[_Union[InvokeRequest, _Mapping]] = ..., cancel: _Optional[_Union[CancelRequest, _Mapping]] = ..., user_input: _Optional[_Union[DeliverUserInput, _Mapping]] = ..., delegation_result: _Optional[_Union[DeliverDelegationResult, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., checkpoint_ack: _Optional[_Union[CheckpointAck, _Mapping]] = ..., mcp_answer: _Optional[_Union[DeliverMcpAnswer, _Mapping]] = ..., line_request: _Optional[_Union[LineRequest, _Mapping]] = ..., storage_answer: _Optional[_Union[DeliverStorageAnswer, _Mapping]] = ...) -> None: ...

class ServerMessage(_message.Message):
    __slots__ = ("init", "status", "progress", "chunk", "artifact", "elicitation", "delegation", "log", "completed", "failed", "cancel", "pong", "checkpoint", "artifact_data", "resource_changed", "elicitation_completed", "mcp_requested", "mcp_lists_changed", "line_answer", "line_notification", "storage_requested")
    INIT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    ELICITATION_FIELD_NUMBER: _ClassVar[int]
    DELEGATION_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_DATA_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_CHANGED_FIELD_NUMBER: _ClassVar[int]
    ELICITATION_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    MCP_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    MCP_LISTS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    LINE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    LINE_NOTIFICATION_FIELD_NUMBER: _ClassVar[int]
    STORAGE_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    init: InitResponse
    status: StatusUpdated
    progress: Progress
    chunk: ResultChunk
    artifact: ArtifactEmitted
    elicitation: ElicitationRequested
    delegation: DelegationRequested
    log: LogLine
    completed: Completed
    failed: Failed
    cancel: CancelResponse
    pong: Pong
    checkpoint: Checkpoint
    artifact_data: ArtifactData
    resource_changed: ResourceChanged
    elicitation_completed: ElicitationCompleted
    mcp_requested: McpRequested
    mcp_lists_changed: McpListsChanged
    line_answer: LineAnswer
    line_notification: LineNotification
    storage_requested: StorageRequested
    def __init__(self, init: _Optional[_Union[InitResponse, _Mapping]] = ..., status: _Optional[_Union[StatusUpdated, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., chunk: _Optional[_Union[ResultChunk, _Mapping]] = ..., artifact: _Optional[_Union[ArtifactEmitted, _Mapping]] = ..., elicitation: _Optional[_Union[ElicitationRequested, _Mapping]] = ..., delegation: _Optional[_Union[DelegationRequested, _Mapping]] = ..., log: _Optional[_Union[LogLine, _Mapping]] = ..., completed: _Optional[_Union[Completed, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., cancel: _Optional[_Union[CancelResponse, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., checkpoint: _Optional[_Union[Checkpoint, _Mapping]] = ..., artifact_data: _Optional[_Union[ArtifactData, _Mapping]] = ..., resource_changed: _Optional[_Union[ResourceChanged, _Mapping]] = ..., elicitation_completed: _Optional[_Union[ElicitationCompleted, _Mapping]] = ..., mcp_requested: _Optional[_Union[McpRequested, _Mapping]] = ..., mcp_lists_changed: _Optional[_Union[McpListsChanged, _Mapping]] = ..., line_answer: _Optional[_Union[LineAnswer, _Mapping]] = ..., line_notification: _Optional[_Union[LineNotification, _Mapping]] = ..., storage_requested: _Optional[_Union[StorageRequested, _Mapping]] = ...) -> None: ...

class ListResourcesRequest(_message.Message):
    __slots__ = ("ctx", "request_id", "mcp", "primitive")
    CTX_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MCP_FIELD_NUMBER: _ClassVar[int]
    PRIMITIVE_FIELD_NUMBER: _ClassVar[int]
    ctx: Context
    request_id: str
    mcp: bool
    primitive: str
    def __init__(self, ctx: _Optional[_Union[Context, _Mapping]] = ..., request_id: _Optional[str] = ..., mcp: _Optional[bool] = ..., primitive: _Optional[str] = ...) -> None: ...

class ResourceInfo(_message.Message):
    __slots__ = ("uri", "name", "title", "description", "mime_type")
    URI_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MIME_TYPE_FIELD_NUMBER: _ClassVar[int]
    uri: str
    name: str
    title: str
    description: str
    mime_type: str
    def __init__(self, uri: _Optional[str] = ..., name: _Optional[str] = ..., title: _Optional[str] = ..., description: _Optional[str] = ..., mime_type: _Optional[str] = ...) -> None: ...

class ListResourcesResponse(_message.Message):
    __slots__ = ("resources", "mcp")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    MCP_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[ResourceInfo]
    mcp: McpLists
    def __init__(self, resources: _Optional[_Iterable[_Union[ResourceInfo, _Mapping]]] = ..., mcp: _Optional[_Union[McpLists, _Mapping]] = ...) -> None: ...

class McpLists(_message.Message):
    __slots__ = ("tools", "prompts", "resources", "templates", "tells_of_changes")
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    TEMPLATES_FIELD_NUMBER: _ClassVar[int]
    TELLS_OF_CHANGES_FIELD_NUMBER: _ClassVar[int]
    tools: Json
    prompts: Json
    resources: Json
    templates: Json
    tells_of_changes: bool
    def __init__(self, tools: _Optional[_Union[Json, _Mapping]] = ..., prompts: _Optional[_Union[Json, _Mapping]] = ..., resources: _Optional[_Union[Json, _Mapping]] = ..., templates: _Optional[_Union[Json, _Mapping]] = ..., tells_of_changes: _Optional[bool] = ...) -> None: ...

class Asked(_message.Message):
    __slots__ = ("elicitations", "delegations")
    ELICITATIONS_FIELD_NUMBER: _ClassVar[int]
    DELEGATIONS_FIELD_NUMBER: _ClassVar[int]
    elicitations: _containers.RepeatedCompositeFieldContainer[ElicitationRequested]
    delegations: _containers.RepeatedCompositeFieldContainer[DelegationRequested]
    def __init__(self, elicitations: _Optional[_Iterable[_Union[ElicitationRequested, _Mapping]]] = ..., delegations: _Optional[_Iterable[_Union[DelegationRequested, _Mapping]]] = ...) -> None: ...

class ReadResourceRequest(_message.Message):
    __slots__ = ("ctx", "primitive", "version", "uri", "arguments", "request_id", "deadline", "access_token", "attrs", "given", "completing")
    class AttrsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CTX_FIELD_NUMBER: _ClassVar[int]
    PRIMITIVE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    ACCESS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ATTRS_FIELD_NUMBER: _ClassVar[int]
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    COMPLETING_FIELD_NUMBER: _ClassVar[int]
    ctx: Context
    primitive: str
    version: str
    uri: str
    arguments: Json
    request_id: str
    deadline: _timestamp_pb2.Timestamp
    access_token: str
    attrs: _containers.ScalarMap[str, str]
    given: Resume
    completing: str
    def __init__(self, ctx: _Optional[_Union[Context, _Mapping]] = ..., primitive: _Optional[str] = ..., version: _Optional[str] = ..., uri: _Optional[str] = ..., arguments: _Optional[_Union[Json, _Mapping]] = ..., request_id: _Optional[str] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., access_token: _Optional[str] = ..., attrs: _Optional[_Mapping[str, str]] = ..., given: _Optional[_Union[Resume, _Mapping]] = ..., completing: _Optional[str] = ...) -> None: ...

class Completion(_message.Message):
    __slots__ = ("values", "total", "has_more")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    total: int
    has_more: bool
    def __init__(self, values: _Optional[_Iterable[str]] = ..., total: _Optional[int] = ..., has_more: _Optional[bool] = ...) -> None: ...

class ContentChunk(_message.Message):
    __slots__ = ("uri", "mime_type", "text", "blob", "asked", "completion", "meta", "starts")
    URI_FIELD_NUMBER: _ClassVar[int]
    MIME_TYPE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    META_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    uri: str
    mime_type: str
    text: str
    blob: bytes
    asked: Asked
    completion: Completion
    meta: Json
    starts: bool
    def __init__(self, uri: _Optional[str] = ..., mime_type: _Optional[str] = ..., text: _Optional[str] = ..., blob: _Optional[bytes] = ..., asked: _Optional[_Union[Asked, _Mapping]] = ..., completion: _Optional[_Union[Completion, _Mapping]] = ..., meta: _Optional[_Union[Json, _Mapping]] = ..., starts: _Optional[bool] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("ctx", "primitive", "uri", "request_id")
    CTX_FIELD_NUMBER: _ClassVar[int]
    PRIMITIVE_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ctx: Context
    primitive: str
    uri: str
    request_id: str
    def __init__(self, ctx: _Optional[_Union[Context, _Mapping]] = ..., primitive: _Optional[str] = ..., uri: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class ResourceUpdated(_message.Message):
    __slots__ = ("uri",)
    URI_FIELD_NUMBER: _ClassVar[int]
    uri: str
    def __init__(self, uri: _Optional[str] = ...) -> None: ...

class ListPromptsRequest(_message.Message):
    __slots__ = ("ctx", "request_id")
    CTX_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ctx: Context
    request_id: str
    def __init__(self, ctx: _Optional[_Union[Context, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class PromptInfo(_message.Message):
    __slots__ = ("name", "title", "description")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    title: str
    description: str
    def __init__(self, name: _Optional[str] = ..., title: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class ListPromptsResponse(_message.Message):
    __slots__ = ("prompts",)
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    prompts: _containers.RepeatedCompositeFieldContainer[PromptInfo]
    def __init__(self, prompts: _Optional[_Iterable[_Union[PromptInfo, _Mapping]]] = ...) -> None: ...

class GetPromptRequest(_message.Message):
    __slots__ = ("ctx", "name", "version", "arguments", "request_id", "deadline", "access_token", "attrs", "given", "completing")
    class AttrsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CTX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    ACCESS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ATTRS_FIELD_NUMBER: _ClassVar[int]
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    COMPLETING_FIELD_NUMBER: _ClassVar[int]
    ctx: Context
    name: str
    version: str
    arguments: Json
    request_id: str
    deadline: _timestamp_pb2.Timestamp
    access_token: str
    attrs: _containers.ScalarMap[str, str]
    given: Resume
    completing: str
    def __init__(self, ctx: _Optional[_Union[Context, _Mapping]] = ..., name: _Optional[str] = ..., version: _Optional[str] = ..., arguments: _Optional[_Union[Json, _Mapping]] = ..., request_id: _Optional[str] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., access_token: _Optional[str] = ..., attrs: _Optional[_Mapping[str, str]] = ..., given: _Optional[_Union[Resume, _Mapping]] = ..., completing: _Optional[str] = ...) -> None: ...

class PromptMessage(_message.Message):
    __slots__ = ("role", "content")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    role: str
    content: Json
    def __init__(self, role: _Optional[str] = ..., content: _Optional[_Union[Json, _Mapping]] = ...) -> None: ...

class GetPromptResponse(_message.Message):
    __slots__ = ("description", "messages", "asked", "completion")
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    description: str
    messages: _containers.RepeatedCompositeFieldContainer[PromptMessage]
    asked: Asked
    completion: Completion
    def __init__(self, description: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[PromptMessage, _Mapping]]] = ..., asked: _Optional[_Union[Asked, _Mapping]] = ..., completion: _Optional[_Union[Completion, _Mapping]] = ...) -> None: ...
