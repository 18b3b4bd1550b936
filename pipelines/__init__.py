"""Scheduled retraining on top of bigsvm: plain steps that cron, systemd or SLURM can run."""
