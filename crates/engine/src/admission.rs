//! Who runs: requests that come, wait, start, give way to older ones, and end.
//!
//! Waiting requests start in the order in which they came, as soon as there is a place and there are pages. When pages run
//! out, the youngest running one goes back to the front of the queue with all that it has said. Its text is computed
//! again later, and goes on as if nothing had happened: everything is keyed by positions.

use std::sync::Arc;

use foredraft_model::ForwardError;
use foredraft_speculate::TargetBuffers;

use crate::answer::Answer;
use crate::engine::{Engine, Finished};
use crate::error::EngineError;
use crate::pages::Pages;
use crate::request::{FinishReason, Request, RequestId};
use crate::sequence::Sequence;
use crate::task::Task;

impl Engine {
    /// Takes a request; [`Engine::step`] answers it.
    ///
    /// # Errors
    /// When the request cannot be served, whatever else there is; nothing is changed then.
    pub fn submit(&mut self, request: impl Into<Arc<Request>>) -> Result<RequestId, EngineError> {
        let request = request.into();
        self.check(&request)?;
        let drafters = match request.speculation.nodes() {
            0 => Vec::new(),
            _ => self.drafters.names().map(str::to_owned).collect(),
        };
        let answer = Answer::new(request, &self.model.tokenizer, drafters)?;
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.waiting
            .push_back(Task::new(id, answer, self.pages.groups()));
        Ok(id)
    }

    /// Ends a request, with what it has so far; the next step gives it out. Does nothing where it has ended.
    pub fn cancel(&mut self, request: RequestId) {
        let waits = self.waiting.iter().position(|task| task.id == request);
        let runs = self.running.iter().position(|task| task.id == request);
        let task = match (waits, runs) {
            (Some(place), _) => self.waiting.remove(place),
            (None, Some(place)) => Some(self.running.remove(place)),
            (None, None) => None,
        };
        if let Some(mut task) = task {
            task.answer.output.finish();
            let ended = self.close(task, Ok(FinishReason::Cancelled));
            self.ended.push(ended);
        }
    }

    /// Whether there is nothing to do: no request waits or runs, and every end has been given out.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty() && self.ended.is_empty()
    }

    /// Requests that wait for a place, those that had to give theirs up among them.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Requests that are being answered.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Checks a request before anything is changed.
    fn check(&self, request: &Request) -> Result<(), EngineError> {
        let model = &self.model;
        request
            .sampling
            .validate_for(model.tokenizer.vocabulary_len())?;
        let (prompt, context) = (request.prompt.len(), model.options.context_tokens);
        if prompt == 0 {
            return Err(EngineError::EmptyPrompt);
        }
        if prompt >= context {
            return Err(EngineError::PromptTooLong { prompt, context });
        }
        let (asked, reserved) = (request.speculation.nodes(), model.max_draft_nodes);
        if asked > reserved && !self.drafters.is_empty() {
            return Err(EngineError::DraftNodes { asked, reserved });
        }
        let vocabulary = model.executor.program().vocabulary;
        match request.prompt.iter().find(|id| id.index() >= vocabulary) {
            Some(&token) => Err(ForwardError::Token { token, vocabulary }.into()),
            None => Ok(()),
        }
    }

    /// Starts waiting requests, first come, first served, as long as there are places and pages.
    pub(crate) fn admit(&mut self) {
        if !self.waiting.is_empty() {
            self.pages.release(&mut self.timed, false);
        }
        while self.running.len() < self.max_sequences
            && let Some(mut task) = self.waiting.pop_front()
        {
            let running = self.running.iter().map(|task| &task.sequence);
            if !self.pages.admit(&mut task.sequence, running) {
                self.waiting.push_front(task);
                return;
            }
            let cached = task.sequence.committed();
            if task.answer.start(cached) {
                self.figures.prompt_tokens += task.sequence.tokens().len() as u64;
                self.figures.cached_prompt_tokens += cached as u64;
            }
            // Whoever was put back is older than those behind it: the running stay in the order of their age.
            debug_assert!(self.running.iter().all(|other| other.id < task.id));
            self.running.push(task);
        }
    }

    /// Puts the youngest running sequence back in front of the queue. Its pages stay in the cache while there is room.
    pub(crate) fn preempt_youngest(&mut self) {
        if let Some(mut task) = self.running.pop() {
            self.figures.preemptions += 1;
            self.pages.release(&mut task.sequence, true);
            self.drafters.forget(task.sequence_id());
            self.waiting.push_front(task);
        }
    }

    /// What becomes of a request that has ended: its pages go to the cache, or back, where something was wrong with it.
    pub(crate) fn close(
        &mut self,
        mut task: Task,
        result: Result<FinishReason, EngineError>,
    ) -> Finished {
        self.figures.ended.count(&result);
        self.pages.release(&mut task.sequence, result.is_ok());
        self.drafters.forget(task.sequence_id());
        (task.id, result.map(|finish| task.answer.finish(finish)))
    }

    /// After a panic in the middle of a step nothing that it worked with can be relied on: ends every request with an
    /// error, and begins with empty pools.
    pub(crate) fn reset(&mut self, message: &str, finished: &mut Vec<Finished>) {
        finished.append(&mut self.ended);
        for task in self.running.drain(..).chain(self.waiting.drain(..)) {
            let message = message.to_owned();
            self.figures.ended.failed += 1;
            self.drafters.forget(task.sequence_id());
            finished.push((task.id, Err(EngineError::Panicked { message })));
        }
        self.drafters.clear();
        let groups = self.pages.groups();
        self.pages = Pages::new(&self.model.options.pages);
        self.timed = Sequence::new(Vec::new(), groups);
        self.target = TargetBuffers::new();
    }
}
