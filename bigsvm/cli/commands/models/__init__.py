"""Commands that use models: prediction, evaluation, proof, export, registry."""
