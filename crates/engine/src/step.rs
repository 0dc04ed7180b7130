//! One step of all running sequences: schedule, draft, run, answer, keep. Plain decoding is the step whose trees have one
//! node each.
//!
//! ```text
//! schedule  who waits gets a place; who gets how many rows; pages for what may be committed
//! draft     trees grow from the last tokens, level by level, all at once       nothing to do without drafters
//! run       ONE pass: pending tokens (a sequence's last is its root), then its nodes; logits of roots and nodes
//! answer    each sequence by itself: verify, emit (emit.rs)
//! keep      accepted paths are copied from the scratch to pages, never computed again; the rest is forgotten
//! ```
//!
//! Invariant: after a step a sequence holds what was emitted and no more, and its pages what plain decoding would have
//! in them: all of it but the last token, the next root (or less, where a text is still being read).

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::drafting::{Drafters, Lane, Report};
use crate::emit::Turn;
use crate::engine::{Engine, Finished};
use crate::error::{EngineError, guarded};
use crate::output::Output;
use crate::request::{Event, FinishReason, Phases, RequestId};
use crate::task::Task;

/// Who hears of what happens to which request, and may end it.
pub(crate) type OnEvent<'e> = &'e mut dyn FnMut(RequestId, Event<'_>) -> ControlFlow<()>;

impl Engine {
    /// Makes one step: whoever waits and can run starts, and every running request advances, or reads on. `on_event` hears
    /// of progress and text, and may end a request; `finished` gets those that ended since the last step.
    ///
    /// What goes wrong in a request's part (its logits, its listener) ends that request, with an error. So does a defect of
    /// the pass, for all that are in it.
    pub fn step(&mut self, on_event: OnEvent<'_>, finished: &mut Vec<Finished>) {
        finished.append(&mut self.ended);
        let mut clock = Clock::start();
        let mut phases = Phases::default();
        self.admit();
        self.schedule();
        self.reserve();
        phases.other_seconds = clock.lap();
        if self.running.iter().any(|task| task.runs()) {
            self.draft(on_event);
            phases.draft_seconds = clock.lap();
            self.run();
            phases.forward_seconds = clock.lap();
            self.answer(on_event, &mut clock, &mut phases);
            self.observe();
            phases.draft_seconds += clock.lap();
            self.keep();
            phases.other_seconds += clock.lap();
            self.figures.phases += phases;
        }
        self.end_step(phases, on_event, finished);
    }

    /// Shares the rows of the pass.
    fn schedule(&mut self) {
        let context = self.model.options.context_tokens;
        self.wants.clear();
        let tasks = self.running.iter_mut();
        self.wants.extend(tasks.map(|task| task.want(context)));
        self.scheduler
            .share_out(&self.wants, self.limits, &mut self.shares);
        for (task, &share) in self.running.iter_mut().zip(&self.shares) {
            task.take(share);
        }
    }

    /// Takes the pages of all that may be committed. Where there are none left, the youngest sequence gives up its own and
    /// waits again; the oldest always advances.
    fn reserve(&mut self) {
        let mut next = 0;
        while let Some(task) = self.running.get_mut(next) {
            let executor = &mut *self.model.executor;
            let reach = task.reach();
            if !task.runs() || self.pages.reserve(&mut task.sequence, reach, executor) {
                next += 1;
            } else if next == 0 && self.running.len() == 1 {
                let pages = self.pages.smallest_pool();
                self.running[0].fail(EngineError::Pages { pages });
                return;
            } else {
                self.preempt_youngest();
            }
        }
    }

    /// Grows the trees of all roots in the pass.
    fn draft(&mut self, on_event: OnEvent<'_>) {
        if self.drafters.is_empty() {
            return;
        }
        // What is read beside others is read by drafters at the same pace, so that nobody waits for a long text of theirs.
        if self.running.iter().any(|task| task.part.has_root) {
            self.ask(Task::reads_on, Drafters::read, on_event);
        }
        self.ask(Task::drafts, Drafters::grow, on_event);
    }

    /// Asks the drafters something for some tasks, and warns those that so lose one.
    fn ask(
        &mut self,
        of: fn(&Task) -> bool,
        what: fn(&mut Drafters, &mut [Lane<'_>], Report<'_>),
        on_event: OnEvent<'_>,
    ) {
        let allowed = &self.model.allowed;
        let tasks = self.running.iter_mut().filter(|task| of(task));
        let mut lanes: Vec<_> = tasks.map(|task| task.lane(allowed)).collect();
        let mut warnings = Vec::new();
        what(&mut self.drafters, &mut lanes, &mut |lane, error| {
            warnings.push((lane, error.to_string()));
        });
        for (lane, warning) in warnings {
            let mut tasks = self.running.iter_mut().filter(|task| of(task));
            if let Some(task) = tasks.nth(lane) {
                // The answer does not suffer, so whether more is wanted is asked elsewhere.
                let told = guarded(|| Ok(on_event(task.id, Event::Warning(&warning))));
                if let Err(error) = told {
                    task.fail(error);
                }
            }
        }
    }

    /// Runs pending tokens and nodes of all in one pass. Node `n` of a task has its logits in output `outputs[n]`, its keys
    /// and values in slot `node_slots[n]`.
    fn run(&mut self) {
        self.batch.clear();
        for task in self.running.iter_mut().filter(|task| task.runs()) {
            task.add_rows(&mut self.batch, &self.model.allowed);
            self.figures.count_rows(task, &self.costs);
        }
        self.figures.count_pass(&self.batch, &self.costs);
        if let Err(error) = self.model.executor.forward(&self.batch) {
            for task in self.running.iter_mut().filter(|task| task.runs()) {
                task.fail(error.into());
            }
        }
    }

    /// Lets each task make of its rows what they say.
    fn answer(&mut self, on_event: OnEvent<'_>, clock: &mut Clock, phases: &mut Phases) {
        for task in self.running.iter_mut().filter(|task| task.runs()) {
            if task.end.is_some() {
                continue;
            }
            let mut turn = Turn {
                model: &self.model,
                buffers: &mut self.target,
                on_event: &mut *on_event,
                clock: &mut *clock,
                phases: &mut *phases,
            };
            let result = guarded(|| turn.answer(task));
            match result {
                Ok(end) => task.end = end.map(Ok),
                Err(error) => {
                    self.target = Default::default(); // a panic may have left anything there
                    task.fail(error);
                }
            }
            self.figures.count_emitted(task);
            task.cut();
            phases.other_seconds += clock.lap();
        }
    }

    /// Tells the drafters, whose views are still those of the step's start.
    fn observe(&mut self) {
        if self.drafters.is_empty() {
            return;
        }
        let allowed = &self.model.allowed;
        let tasks = self.running.iter_mut().filter(|task| task.drafts());
        let mut outcomes: Vec<_> = tasks.map(|task| task.outcome(allowed)).collect();
        self.drafters.observe(&mut outcomes);
    }

    /// Takes what was emitted into the sequences, and what was computed of it into pages.
    fn keep(&mut self) {
        for task in self.running.iter_mut().filter(|task| task.runs()) {
            if matches!(task.end, Some(Err(_))) {
                continue; // its pages go anyway
            }
            task.keep();
            let executor = &mut *self.model.executor;
            self.pages
                .commit(&mut task.sequence, &task.part.slots, executor);
        }
    }

    /// Counts the step, and takes out who has ended.
    fn end_step(&mut self, phases: Phases, on_event: OnEvent<'_>, finished: &mut Vec<Finished>) {
        let mut next = 0;
        while let Some(task) = self.running.get_mut(next) {
            if task.part.emitted > 0 {
                task.answer.count(phases);
            }
            match task.end.take() {
                None => next += 1,
                Some(end) => {
                    let mut task = self.running.remove(next);
                    let id = task.id;
                    let result = end.and_then(|finish| {
                        guarded(|| Ok(flush(&mut task.answer.output, finish, id, on_event)))
                    });
                    finished.push(self.close(task, result));
                }
            }
        }
    }
}

/// Releases the text that was held back; a stop text may be found in it still.
fn flush(
    output: &mut Output,
    reason: FinishReason,
    id: RequestId,
    on_event: OnEvent<'_>,
) -> FinishReason {
    let stopped = output.finish();
    let fresh = output.fresh();
    if !fresh.is_empty() {
        // The answer is over: whether more is wanted does not matter.
        let _ = on_event(id, Event::Text(fresh));
    }
    if stopped {
        FinishReason::StopString
    } else {
        reason
    }
}

/// Times one phase after the other.
pub(crate) struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    /// Seconds since the last lap.
    pub(crate) fn lap(&mut self) -> f64 {
        let now = Instant::now();
        let lap: Duration = now - self.0;
        self.0 = now;
        lap.as_secs_f64()
    }
}
