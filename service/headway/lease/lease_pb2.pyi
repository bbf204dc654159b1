from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerMessages(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[WorkerMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[WorkerMessage, _Mapping]]] = ...) -> None: ...

class LeaderMessages(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[LeaderMessage]
    def __init__(self, messages: _Optional[_Iterable[_Union[LeaderMessage, _Mapping]]] = ...) -> None: ...

class JobKey(_message.Message):
    __slots__ = ("tenant", "id")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    id: str
    def __init__(self, tenant: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class GrantToken(_message.Message):
    __slots__ = ("epoch", "number")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    number: int
    def __init__(self, epoch: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class WorkerMessage(_message.Message):
    __slots__ = ("hello", "demand", "progress", "ended", "returned", "refused")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    DEMAND_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    demand: Demand
    progress: Progress
    ended: Ended
    returned: Returned
    refused: Refused
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., demand: _Optional[_Union[Demand, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ..., returned: _Optional[_Union[Returned, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ...) -> None: ...

class LeaderMessage(_message.Message):
    __slots__ = ("welcome", "redirect", "grant", "recall", "cancel")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REDIRECT_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    RECALL_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    redirect: Redirect
    grant: Grant
    recall: Recall
    cancel: CancelJob
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., redirect: _Optional[_Union[Redirect, _Mapping]] = ..., grant: _Optional[_Union[Grant, _Mapping]] = ..., recall: _Optional[_Union[Recall, _Mapping]] = ..., cancel: _Optional[_Union[CancelJob, _Mapping]] = ...) -> None: ...

class HeldJob(_message.Message):
    __slots__ = ("key", "grant", "started")
    KEY_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    key: JobKey
    grant: GrantToken
    started: bool
    def __init__(self, key: _Optional[_Union[JobKey, _Mapping]] = ..., grant: _Optional[_Union[GrantToken, _Mapping]] = ..., started: bool = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("incarnation", "name", "model", "page_size", "num_pages", "max_num_seqs", "held", "newest_epoch")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_PAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    NEWEST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    name: str
    model: str
    page_size: int
    num_pages: int
    max_num_seqs: int
    held: _containers.RepeatedCompositeFieldContainer[HeldJob]
    newest_epoch: int
    def __init__(self, incarnation: _Optional[str] = ..., name: _Optional[str] = ..., model: _Optional[str] = ..., page_size: _Optional[int] = ..., num_pages: _Optional[int] = ..., max_num_seqs: _Optional[int] = ..., held: _Optional[_Iterable[_Union[HeldJob, _Mapping]]] = ..., newest_epoch: _Optional[int] = ...) -> None: ...

class Demand(_message.Message):
    __slots__ = ("num_sequences", "num_pages", "last_grant")
    NUM_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    NUM_PAGES_FIELD_NUMBER: _ClassVar[int]
    LAST_GRANT_FIELD_NUMBER: _ClassVar[int]
    num_sequences: int
    num_pages: int
    last_grant: int
    def __init__(self, num_sequences: _Optional[int] = ..., num_pages: _Optional[int] = ..., last_grant: _Optional[int] = ...) -> None: ...

class JobProgress(_message.Message):
    __slots__ = ("key", "grant", "started", "num_prompt_tokens", "num_cached_tokens", "num_output_tokens")
    KEY_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    key: JobKey
    grant: GrantToken
    started: bool
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    def __init__(self, key: _Optional[_Union[JobKey, _Mapping]] = ..., grant: _Optional[_Union[GrantToken, _Mapping]] = ..., started: bool = ..., num_prompt_tokens: _Optional[int] = ..., num_cached_tokens: _Optional[int] = ..., num_output_tokens: _Optional[int] = ...) -> None: ...

class WorkerLoad(_message.Message):
    __slots__ = ("num_running", "num_waiting", "num_free_pages", "step_seconds")
    NUM_RUNNING_FIELD_NUMBER: _ClassVar[int]
    NUM_WAITING_FIELD_NUMBER: _ClassVar[int]
    NUM_FREE_PAGES_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    num_running: int
    num_waiting: int
    num_free_pages: int
    step_seconds: float
    def __init__(self, num_running: _Optional[int] = ..., num_waiting: _Optional[int] = ..., num_free_pages: _Optional[int] = ..., step_seconds: _Optional[float] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("jobs", "load")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobProgress]
    load: WorkerLoad
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobProgress, _Mapping]]] = ..., load: _Optional[_Union[WorkerLoad, _Mapping]] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("key", "grant", "finish_reason", "num_output_tokens")
    KEY_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    key: JobKey
    grant: GrantToken
    finish_reason: str
    num_output_tokens: int
    def __init__(self, key: _Optional[_Union[JobKey, _Mapping]] = ..., grant: _Optional[_Union[GrantToken, _Mapping]] = ..., finish_reason: _Optional[str] = ..., num_output_tokens: _Optional[int] = ...) -> None: ...

class Returned(_message.Message):
    __slots__ = ("key", "grant", "reason", "num_lost_attempts")
    KEY_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_LOST_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    key: JobKey
    grant: GrantToken
    reason: str
    num_lost_attempts: int
    def __init__(self, key: _Optional[_Union[JobKey, _Mapping]] = ..., grant: _Optional[_Union[GrantToken, _Mapping]] = ..., reason: _Optional[str] = ..., num_lost_attempts: _Optional[int] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("key", "grant", "conflict", "newest_epoch")
    KEY_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_FIELD_NUMBER: _ClassVar[int]
    NEWEST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    key: JobKey
    grant: GrantToken
    conflict: bool
    newest_epoch: int
    def __init__(self, key: _Optional[_Union[JobKey, _Mapping]] = ..., grant: _Optional[_Union[GrantToken, _Mapping]] = ..., conflict: bool = ..., newest_epoch: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("epoch", "lease_seconds")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    lease_seconds: float
    def __init__(self, epoch: _Optional[int] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class Redirect(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("key", "token", "stream_sequence", "payload", "arrival_seconds", "queue_seconds", "deadline_seconds", "alone", "num_lost_attempts", "traceparent")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    STREAM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    NUM_LOST_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    key: JobKey
    token: GrantToken
    stream_sequence: int
    payload: bytes
    arrival_seconds: float
    queue_seconds: float
    deadline_seconds: float
    alone: bool
    num_lost_attempts: int
    traceparent: str
    def __init__(self, key: _Optional[_Union[JobKey, _Mapping]] = ..., token: _Optional[_Union[GrantToken, _Mapping]] = ..., stream_sequence: _Optional[int] = ..., payload: _Optional[bytes] = ..., arrival_seconds: _Optional[float] = ..., queue_seconds: _Optional[float] = ..., deadline_seconds: _Optional[float] = ..., alone: bool = ..., num_lost_attempts: _Optional[int] = ..., traceparent: _Optional[str] = ...) -> None: ...

class Recall(_message.Message):
    __slots__ = ("key", "grant")
    KEY_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    key: JobKey
    grant: GrantToken
    def __init__(self, key: _Optional[_Union[JobKey, _Mapping]] = ..., grant: _Optional[_Union[GrantToken, _Mapping]] = ...) -> None: ...

class CancelJob(_message.Message):
    __slots__ = ("key", "grant", "reason")
    KEY_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    key: JobKey
    grant: GrantToken
    reason: str
    def __init__(self, key: _Optional[_Union[JobKey, _Mapping]] = ..., grant: _Optional[_Union[GrantToken, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...
