"""Why did these tuples join, or why didn't they? Answers from state, side outputs and results, while they last."""
