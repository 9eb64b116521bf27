//! Winterfell: a proof that eight numbers were mixed so often, of a circuit of this page.

use winterfell::crypto::{DefaultRandomCoin, MerkleTree, hashers::Blake3_256};
use winterfell::math::{FieldElement, ToElements, fields::f64::BaseElement};
use winterfell::matrix::ColMatrix;
use winterfell::{
    AcceptableOptions, Air, AirContext, Assertion, AuxRandElements, BatchingMethod,
    CompositionPoly, CompositionPolyTrace, ConstraintCompositionCoefficients,
    DefaultConstraintCommitment, DefaultConstraintEvaluator, DefaultTraceLde, EvaluationFrame,
    FieldExtension, PartitionOptions, ProofOptions, Prover, StarkDomain, Trace, TraceInfo,
    TracePolyTable, TraceTable, TransitionConstraintDegree,
};

const WIDTH: usize = 8;
const STEPS: usize = 1 << 15;

type Hash = Blake3_256<BaseElement>;
type Tree = MerkleTree<Hash>;
type Coin = DefaultRandomCoin<Hash>;

/// The next value of a column: the cube of it and its neighbour's sum.
fn mixed<E: FieldElement>(state: &[E], column: usize) -> E {
    (state[column] + state[(column + 1) % WIDTH]).cube() + E::from(column as u32)
}

#[derive(Clone)]
struct Ends {
    first: [BaseElement; WIDTH],
    last: [BaseElement; WIDTH],
}

impl ToElements<BaseElement> for Ends {
    fn to_elements(&self) -> Vec<BaseElement> {
        [self.first, self.last].concat()
    }
}

struct Mixing {
    context: AirContext<BaseElement>,
    ends: Ends,
}

impl Air for Mixing {
    type BaseField = BaseElement;
    type PublicInputs = Ends;

    fn new(trace: TraceInfo, ends: Ends, options: ProofOptions) -> Self {
        let degrees = vec![TransitionConstraintDegree::new(3); WIDTH];
        Mixing { context: AirContext::new(trace, degrees, 2 * WIDTH, options), ends }
    }

    fn evaluate_transition<E: FieldElement<BaseField = BaseElement>>(
        &self,
        frame: &EvaluationFrame<E>,
        _periodic: &[E],
        result: &mut [E],
    ) {
        for (column, result) in result.iter_mut().enumerate() {
            *result = frame.next()[column] - mixed(frame.current(), column);
        }
    }

    fn get_assertions(&self) -> Vec<Assertion<BaseElement>> {
        let last = self.trace_length() - 1;
        let at = |step, values: [BaseElement; WIDTH]| {
            (0..WIDTH).map(move |column| Assertion::single(column, step, values[column]))
        };
        at(0, self.ends.first).chain(at(last, self.ends.last)).collect()
    }

    fn context(&self) -> &AirContext<BaseElement> {
        &self.context
    }
}

struct Mixer(ProofOptions);

impl Prover for Mixer {
    type BaseField = BaseElement;
    type Air = Mixing;
    type Trace = TraceTable<BaseElement>;
    type HashFn = Hash;
    type VC = Tree;
    type RandomCoin = Coin;
    type TraceLde<E: FieldElement<BaseField = BaseElement>> = DefaultTraceLde<E, Hash, Tree>;
    type ConstraintCommitment<E: FieldElement<BaseField = BaseElement>> =
        DefaultConstraintCommitment<E, Hash, Tree>;
    type ConstraintEvaluator<'a, E: FieldElement<BaseField = BaseElement>> =
        DefaultConstraintEvaluator<'a, Mixing, E>;

    fn get_pub_inputs(&self, trace: &Self::Trace) -> Ends {
        let at = |step| std::array::from_fn(|column| trace.get(column, step));
        Ends { first: at(0), last: at(trace.length() - 1) }
    }

    fn options(&self) -> &ProofOptions {
        &self.0
    }

    fn new_trace_lde<E: FieldElement<BaseField = BaseElement>>(
        &self,
        info: &TraceInfo,
        trace: &ColMatrix<BaseElement>,
        domain: &StarkDomain<BaseElement>,
        partition: PartitionOptions,
    ) -> (Self::TraceLde<E>, TracePolyTable<E>) {
        DefaultTraceLde::new(info, trace, domain, partition)
    }

    fn build_constraint_commitment<E: FieldElement<BaseField = BaseElement>>(
        &self,
        trace: CompositionPolyTrace<E>,
        columns: usize,
        domain: &StarkDomain<BaseElement>,
        partition: PartitionOptions,
    ) -> (Self::ConstraintCommitment<E>, CompositionPoly<E>) {
        DefaultConstraintCommitment::new(trace, columns, domain, partition)
    }

    fn new_evaluator<'a, E: FieldElement<BaseField = BaseElement>>(
        &self,
        air: &'a Mixing,
        random: Option<AuxRandElements<E>>,
        coefficients: ConstraintCompositionCoefficients<E>,
    ) -> Self::ConstraintEvaluator<'a, E> {
        DefaultConstraintEvaluator::new(air, random, coefficients)
    }
}

fn mixing() -> TraceTable<BaseElement> {
    let mut trace = TraceTable::new(WIDTH, STEPS);
    trace.fill(
        |state| (0..WIDTH).for_each(|column| state[column] = BaseElement::from(column as u32)),
        |_, state| {
            let before: [BaseElement; WIDTH] = std::array::from_fn(|column| state[column]);
            (0..WIDTH).for_each(|column| state[column] = mixed(&before, column));
        },
    );
    trace
}

pub fn rounds() -> super::Round {
    let options = ProofOptions::new(
        32,
        8,
        0,
        FieldExtension::Quadratic,
        8,
        31,
        BatchingMethod::Linear,
        BatchingMethod::Linear,
    );
    let prover = Mixer(options.clone());
    Box::new(move || {
        let trace = mixing();
        let ends = prover.get_pub_inputs(&trace);
        let proof = prover.prove(trace).expect("it was mixed so");
        let last = ends.last[0].as_int();
        let accepted = AcceptableOptions::OptionSet(vec![options.clone()]);
        winterfell::verify::<Mixing, Hash, Coin, Tree>(proof, ends, &accepted).expect("a proof");
        // Proofs differ, by a nonce that threads look for. Each was accepted.
        last as f64
    })
}
