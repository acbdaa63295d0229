"""discreet inside other people's programs. Nothing here is loaded until it is named, but for pytest.py, which is light.

lightning.py     fit a LightningModule privately, with its Trainer
transformers.py  a Hugging Face Trainer that trains privately, adapters (PEFT) included
flower.py        federated learning on a Flower cluster: a strategy, a client mod, an accountant
pytest.py        a release as a fixture, the rules of a privacy.toml as tests
mlflow.py        a release beside the MLflow run that made it
"""
